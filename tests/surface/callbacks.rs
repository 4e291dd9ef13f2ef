//! Permissions, hooks, elicitations and dialogs: what the CLI asks of the application.
