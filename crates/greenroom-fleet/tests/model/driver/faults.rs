//! The faults of the backend.

use super::*;

/// The fate of a request.
pub(super) fn fault(faults: Faults, request: FaultedRequest) -> Fault {
    match faults {
        Faults::Off => Fault::Pass,
        Faults::Random(seed) => {
            let mut random = random(seed, request);
            let time = Duration::from_millis(100).mul_f64(random.f64());
            match random.u8(..20) {
                0..2 => Fault::Fail,
                2..4 => Fault::LoseReply,
                4..7 => Fault::Delay(time),
                7..10 => Fault::DelayReply(time),
                _ => Fault::Pass,
            }
        }
        Faults::Slow(tenths) => {
            let mut random = random(tenths, request);
            let time = (Duration::from_millis(100) * u32::from(tenths)).mul_f64(random.f64());
            if random.bool() { Fault::Delay(time) } else { Fault::DelayReply(time) }
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

/// Random numbers for a request, the same ones for the same seed.
fn random(seed: impl Into<u64>, request: FaultedRequest) -> fastrand::Rng {
    fastrand::Rng::with_seed(seed.into() << 32 | request.total)
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
