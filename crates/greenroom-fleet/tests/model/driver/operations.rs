//! The operations of a case.

use super::*;

impl Life<'_> {
    pub(super) async fn carry_out(&mut self, op: &Op) {
        match op {
            Op::Prompt(ask) => self.prompt(ask),
            Op::Warm(name) => self.with(*name, |session| async move { drop(session.warm().await) }),
            Op::Passivate(name) => self.with(*name, |session| async move {
                // An error: the backend is away.
                session.passivate().await.ok();
            }),
            Op::Quarantine(name) => {
                self.with(*name, |session| async move { drop(session.quarantine("a test").await) });
            }
            Op::Unquarantine(name) => {
                self.with(*name, |session| async move { drop(session.unquarantine().await) });
            }
            Op::Interrupt(name) => {
                let (model, journal) = (self.case.model.clone(), self.case.journal.clone());
                // Without a turn here, the backend is asked whether one runs elsewhere.
                let is_here = journal.is_in_turn(&name_of(*name));
                self.with(*name, |session| async move {
                    let began = Instant::now();
                    if matches!(session.interrupt().await, Ok(true)) {
                        model.state().answers.interrupted += 1;
                        if is_here {
                            journal.answered("an interrupt", began.elapsed());
                        }
                    }
                });
            }
            Op::Delete(name) => {
                let (model, name) = (self.case.model.clone(), *name);
                self.with(name, |session| async move {
                    model.state().deletes(name);
                    drop(session.delete().await);
                    model.state().deleted(name);
                });
            }
            Op::Withdraw(which) => self.withdraw(*which),
            Op::Read(which, seq) => self.read(*which, u64::from(*seq)),
            Op::Advance(millis) => {
                sleep(Duration::from_millis((*millis).into())).await;
            }
            Op::Faults(faults) => self.set_faults(*faults),
            Op::Inject(target) => {
                if let Some(fleet) = &self.fleet {
                    fleet.inject(match target {
                        Target::Admission => FleetFault::Admission,
                        Target::Name(name) => FleetFault::Name(full_name(*name)),
                    });
                }
            }
            Op::CrashCli(name) => self.case.journal.crash(&name_of(*name)),
            Op::FailStarts(count) => self.case.journal.state().fail_starts = (*count).into(),
            Op::Restart(_) => unreachable!("restarts are carried out by `restart`"),
        }
    }

    /// Does something with a session, on a task of its own.
    fn with<F: Future<Output = ()> + Send + 'static>(
        &mut self,
        name: u8,
        what: impl FnOnce(FleetSession) -> F,
    ) {
        if let Some(session) = self.session(name) {
            self.tasks.spawn(what(session));
        }
    }

    fn prompt(&mut self, ask: &Ask) {
        let Some(session) = self.session(ask.name) else { return };
        let (model, journal) = (self.case.model.clone(), self.case.journal.clone());
        let (content, deletions, prompt) = {
            let mut state = model.state();
            let content = state.content(ask);
            state.sent(content);
            let of_content = &state.contents[content];
            let mut prompt = FleetPrompt::new(of_content.prompt.text());
            if let Some(continuation) = &of_content.continuation {
                prompt = prompt.continue_with(continuation.text(), of_content.continuations.into());
            }
            (content, state.deletions_of(ask.name), prompt)
        };
        let prompt = self.details(ask, prompt);
        // Every fourth caller waits for the outcome.
        let waits = content % 4 == 0;
        self.tasks.spawn(async move {
            let answered = session.prompt(prompt).await;
            let answer = match &answered {
                Ok(turn) => Answer::Accepted { id: turn.prompt_id(), duplicate: turn.is_duplicate() },
                Err(PromptError::Unknown { prompt, .. }) => Answer::Unknown(*prompt),
                Err(PromptError::Refused(Refused::KeyReused { .. })) => Answer::KeyReused,
                Err(_) => Answer::Refused,
            };
            if let Err(what) = model.state().answered(content, deletions, &answer) {
                journal.violate(what);
            }
            let Ok(mut turn) = answered else { return };
            drop(session);
            if waits && let Ok(outcome) = turn.outcome().await {
                let read = model.state().read(turn.prompt_id(), outcome);
                if let Err(what) = read {
                    journal.violate(what);
                }
            }
        });
    }

    fn details(&self, ask: &Ask, mut prompt: FleetPrompt) -> FleetPrompt {
        if let Some((key, _)) = ask.key {
            prompt = prompt.key(format!("key-{key}"));
        }
        if let Some(delay) = ask.delay
            && let Some(backend) = &self.backend
        {
            let at = backend.now().after(Duration::from_secs(delay.into()));
            prompt = prompt.not_before(SystemTime::UNIX_EPOCH + Duration::from_millis(at.0));
        }
        match ask.wait {
            Some(wait) => prompt.wait(Duration::from_secs(wait.into())),
            None => prompt,
        }
    }

    /// One of the latest prompts that were accepted.
    fn latest(&self, which: u8) -> Option<PromptId> {
        let state = self.case.model.state();
        let latest = &state.accepted[state.accepted.len().saturating_sub(20)..];
        latest.get(usize::from(which) % latest.len().max(1)).copied()
    }

    fn withdraw(&mut self, which: u8) {
        let (Some(id), Some(fleet)) = (self.latest(which), self.fleet.clone()) else { return };
        let model = self.case.model.clone();
        model.state().asks_back(id);
        self.tasks.spawn(async move {
            if matches!(fleet.operator().withdraw(id).await, Ok(true)) {
                model.state().withdrawn(id);
            }
        });
    }

    fn read(&mut self, which: u8, seq: u64) {
        let (Some(id), Some(fleet)) = (self.latest(which), self.fleet.clone()) else { return };
        let (model, journal) = (self.case.model.clone(), self.case.journal.clone());
        self.tasks.spawn(async move {
            let mut turn = fleet.operator().turn(id).messages_from(seq);
            drop(fleet);
            let own = {
                let state = model.state();
                let content = &state.contents[state.known[&id].content];
                [content.prompt.id.clone(), content.prompt.id.replacen('p', "c", 1)]
            };
            let mut last = seq.saturating_sub(1);
            while let Some(Ok(item)) = turn.next().await {
                let (now, text) = (item.seq().unwrap_or(last), item.text());
                if now <= last {
                    journal.violate(format!("a reader of {id} from {seq} gets number {now} after {last}"));
                }
                last = now;
                if let Some(text) = text.filter(|text| !own.contains(text)) {
                    journal.violate(format!("a reader of {own:?} gets '{text}'"));
                }
                if matches!(item, TurnItem::Gap { .. }) {
                    journal.violate(format!("a reader of {own:?} misses messages: {item:?}"));
                }
            }
        });
    }
}
