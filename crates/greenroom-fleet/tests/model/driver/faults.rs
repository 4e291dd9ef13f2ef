//! The faults of the backend.

use super::*;

/// The fate of a request.
pub(super) fn fault(faults: Faults, request: FaultedRequest) -> Fault {
    match faults {
        Faults::Off => Fault::Pass,
        Faults::Random(seed) => {
            let random =
                RandomFaults { fail: 0.1, lose_reply: 0.1, delay: 0.3, ..RandomFaults::new(seed.into()) };
            random.fault(request)
        }
        Faults::Slow(tenths) => {
            let seed = request.total.wrapping_mul(tenths.into());
            let late = RandomFaults {
                fail: 0.0,
                lose_reply: 0.0,
                delay: 1.0,
                delay_up_to: Duration::from_millis(100) * u32::from(tenths),
                ..RandomFaults::new(seed)
            };
            late.fault(request)
        }
        Faults::Hang(carried_out) => {
            if carried_out {
                Fault::HangReply
            } else {
                Fault::Hang
            }
        }
        Faults::Fail(carried_out) => {
            if carried_out {
                Fault::LoseReply
            } else {
                Fault::Fail
            }
        }
    }
}

impl Life<'_> {
    /// The backend ends with the requests that it has, and is back after a while.
    pub(super) fn restart_backend(&mut self, millis: u16, carried_out: bool) {
        let down = Faults::Hang(carried_out);
        self.set_faults(down);
        let (faults, faulted) = (self.case.faults.clone(), self.faulted.clone());
        self.tasks.spawn(async move {
            sleep(Duration::from_millis(millis.into())).await;
            // Another operation may have changed the faults since.
            let mut faults = faults.lock().unwrap();
            if *faults == down {
                *faults = Faults::Off;
            }
            if let Some(faulted) = faulted {
                faulted.release();
            }
        });
    }
}
