//! Commands by chance, and checks of their records.

use std::collections::BTreeSet;

use super::*;
use crate::record::{CommandKind, CommandRecord, CommandResult, CommandState};

impl World {
    pub(super) fn random_command(&mut self) {
        let Some(owner) = self.one(|world| &world.owners) else { return };
        let attempt = AttemptId::new();
        match self.below(6) {
            0..=2 => {
                let kind = match (self.below(5), self.one(|world| &world.begun)) {
                    (0, Some((_, prompt, _))) => CommandKind::Interrupt { prompt },
                    (1, Some((_, prompt, _))) => CommandKind::Steer { prompt, message: "be kind".to_owned() },
                    (2, _) => CommandKind::MakeWay,
                    (3, _) => CommandKind::Warm,
                    _ => CommandKind::Passivate,
                };
                let deadline = self.now.after(WAIT / 2);
                let put = CommandRecord::new(owner, kind, deadline);
                if let CommandPut::Put(_) = self.twice(|step| step.put_command(put.clone())) {
                    self.commands.push(put.id);
                }
            }
            3..=4 => {
                let Some(command) = self.one(|world| &world.commands) else { return };
                let take = |step: &mut Step<'_>| step.take_command(command, owner.clone(), attempt);
                if let Owned::Done(true) = self.twice(take) {
                    assert!(self.taken.insert(command), "taken twice");
                    if self.below(2) == 0 {
                        let finished =
                            |step: &mut Step<'_>| step.finish_command(command, attempt, CommandResult::Done);
                        assert!(self.twice(finished));
                    }
                }
            }
            _ => {
                let Some(command) = self.one(|world| &world.commands) else { return };
                let _ = self.twice(|step| step.withdraw_command(command));
                let before = Timestamp(self.now.0 - 100);
                self.step(|step| step.forget_commands(before, 1));
            }
        }
    }

    pub(super) fn check_commands(&self) {
        let (mut open, mut deadlines) = (BTreeSet::new(), BTreeSet::new());
        for command in self.records::<CommandRecord>(Table::Commands) {
            let ended = matches!(command.state, CommandState::Ended { .. });
            if !ended {
                let key = Key::of(Table::CommandsOfNode).node(command.owner.node).name(&command.owner.name);
                open.insert(key.command(command.id).bytes().to_vec());
            }
            let key = Key::of(Table::CommandDeadlines).time(command.deadline).command(command.id);
            deadlines.insert(key.bytes().to_vec());
            let withdrawn =
                matches!(command.state, CommandState::Ended { result: CommandResult::Withdrawn, .. });
            assert!(!withdrawn || !self.taken.contains(&command.id), "a command that was taken is withdrawn");
        }
        for (table, expected) in [(Table::CommandsOfNode, open), (Table::CommandDeadlines, deadlines)] {
            let rows: BTreeSet<_> = self.rows(table).into_keys().collect();
            assert_eq!(rows, expected, "rows of table {}", table as u8);
        }
    }
}
