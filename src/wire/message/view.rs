//! Declares messages whose fields are read leniently, beside their raw JSON.

/// Declares a message: the struct, the fields that are read, and how the struct is made of the fields. Fields under
/// `read` must have their shape, or the message is [`Message::Other`](crate::Message::Other). Fields under `made` are
/// computed. All other fields are read leniently.
macro_rules! message {
    (
        $(#[$doc:meta])*
        $name:ident from $all:ident {
            read { $( $(#[$read_attr:meta])* $read:ident: $read_type:ty, )* }
            made |$fields:ident, $head:ident| { $( $(#[$made_about:meta])* $made:ident: $made_type:ty = $make:expr, )* }
            $( $(#[$about:meta])* $field:ident: $type:ty $(= $key:literal)?, )*
        }
    ) => {
        $(#[$doc])*
        #[derive(Clone)]
        #[allow(missing_docs, reason = "fields are named as on the wire")]
        #[non_exhaustive]
        pub struct $name {
            pub(crate) head: MessageHead,
            raw: Box<RawValue>,
            $( $(#[$made_about])* pub $made: $made_type, )*
            $( $(#[$about])* pub $field: $type, )*
        }

        #[derive(serde::Deserialize)]
        pub(crate) struct $all {
            $( $(#[$read_attr])* $read: $read_type, )*
            $(
                #[serde(default, deserialize_with = "crate::wire::lenient::or_default")]
                $( #[serde(rename = $key)] )?
                $field: $type,
            )*
        }

        impl $all {
            pub(crate) fn finish(self, head: MessageHead, raw: Box<RawValue>) -> $name {
                let ($fields, $head) = (self, &head);
                $( let $made = $make; )*
                $name { $( $made, )* $( $field: $fields.$field, )* head, raw }
            }
        }

        $crate::wire::message::view::common!($name);

        /// Writes the fields that are set. Long texts are cut.
        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let mut shown = f.debug_struct(stringify!($name));
                $( $crate::wire::brief::show(&mut shown, stringify!($made), &self.$made); )*
                $( $crate::wire::brief::show(&mut shown, stringify!($field), &self.$field); )*
                self.head.show(&self.raw, &mut shown);
                shown.finish()
            }
        }
    };
}
pub(super) use message;

/// Declares what every type of message has: each keeps a `head` and the `raw` JSON.
macro_rules! common {
    ($message:ty $(, $body:ident)?) => {
        impl$(<$body>)? $message {
            /// The exact JSON of the message as it was received.
            pub fn raw(&self) -> &serde_json::value::RawValue {
                &self.raw
            }

            /// The conversation's id. It changes when a session is forked or reset.
            pub fn session_id(&self) -> Option<&str> {
                self.head.session_id(&self.raw)
            }

            /// The id of this message.
            pub fn uuid(&self) -> Option<&str> {
                self.head.uuid(&self.raw)
            }

            /// The tool call that started the subagent which sent this message; `None` on the main thread.
            pub fn parent_tool_use_id(&self) -> Option<&str> {
                self.head.parent_tool_use_id(&self.raw)
            }

            /// The ids of the prompts that this message belongs to, without repeats. Empty if the CLI names none.
            pub fn user_message_uuids(&self) -> &[String] {
                &self.head.user_message_uuids
            }
        }

        /// Writes the JSON exactly as it was received (with `serde_json`; another format may refuse it).
        impl$(<$body>)? serde::Serialize for $message {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                self.raw.serialize(serializer)
            }
        }
    };
}
pub(super) use common;
