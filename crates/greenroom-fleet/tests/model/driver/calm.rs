//! The end of a case: everything ends that can, and nothing is left.

use super::*;

impl Life<'_> {
    /// Lets everything end that can, and looks at what is left.
    pub(super) async fn calm(&mut self) {
        self.set_faults(Faults::Off);
        self.case.journal.state().fail_starts = 0;
        let began = Instant::now();
        let mut left: Vec<PromptId> = self.case.model.state().known.keys().copied().collect();
        loop {
            if self.events.as_ref().is_some_and(JoinHandle::is_finished) {
                self.ended("the fleet ended by itself").await;
                self.open().await;
            }
            if !self.case.journal.violations().is_empty() {
                return;
            }
            // Tasks that wait for the outcome of a quarantined session's prompt go on waiting.
            sleep(if self.is_paused() { Duration::from_secs(10) } else { Duration::from_millis(200) }).await;
            let Some(backend) = self.backend.clone() else { return };
            left = unfinished(&*backend, &left).await;
            // A node that was killed counts as alive until its lease is over.
            let alone = nodes(&*backend).await.len() <= 1;
            // On the real clock it is awaited, however long a busy machine takes.
            let (least, most) = if self.is_paused() { (320_000, CALM) } else { (3_200, SOON) };
            let passed = began.elapsed();
            if passed > Duration::from_millis(least) && (left.is_empty() && alone || passed > most) {
                break;
            }
        }
        let left = stuck(&*self.backend.clone().unwrap(), &left).await;
        let Some(backend) = self.backend.clone() else { return };
        for id in left {
            let record = backend.prompt_record(id).await.unwrap().unwrap();
            let name = backend.name_record(record.name.clone()).await.unwrap();
            self.violate(format!("accepted-is-kept: a prompt never ends: {record:?} of {name:?}"));
        }
        sleep(Duration::from_millis(10)).await;
        for wrong in check(&*backend, &self.case.model, &self.case.journal).await {
            self.violate(wrong);
        }
        if self.is_paused() {
            self.fair().await;
        }
        self.restart_for_good(backend).await;
    }

    /// The last drain: nothing is left behind.
    async fn restart_for_good(&mut self, backend: Arc<dyn Backend>) {
        let Some(fleet) = self.fleet.take() else { return };
        let limit = Duration::from_secs(20);
        if timeout(limit + LATE, fleet.drain(limit)).await.is_err() && self.is_paused() {
            self.violate("drain-bounded: the last drain is late");
        }
        drop(fleet);
        self.ended("drain-bounded: after the last drain").await;
        let limit = self.limit(Duration::ZERO);
        let lost = async { while self.lost.join_next().await.is_some() {} };
        if timeout(limit, lost).await.is_err() {
            self.violate("one-owner: a fleet whose node is dead has not ended");
        }
        for node in nodes(&*backend).await {
            if node.state != NodeState::Dead || node.owns > 0 {
                self.violate(format!("drain-bounded: a node is left: {node:?}"));
            }
        }
        for number in 0..NAMES {
            let name = backend.name_record(full_name(number)).await.unwrap();
            if let Some(NameRecord { state: state @ NameState::Owned { .. }, .. }) = name {
                self.violate(format!("drain-bounded: {} is left: {state:?}", name_of(number)));
            }
        }
        drop(backend);
        let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
        let none = async {
            while tasks() > 0 {
                sleep(Duration::from_millis(10)).await;
            }
        };
        if timeout(self.limit(Duration::from_secs(1)), none).await.is_err() {
            self.violate(format!("drain-bounded: {} tasks are left", tasks()));
        }
    }
}
