//! The operations of the model test, and how they are drawn.

use proptest::prelude::*;

use super::cli::Kind;

pub(crate) const NAMES: u8 = 50;
pub(crate) const TENANTS: [&str; 3] = ["acme", "bolt", "core"];

/// An operation. The next one begins when nothing more happens at its moment (`settle`), or at once.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) op: Op,
    pub(crate) settle: bool,
}

#[derive(Clone, Debug)]
pub(crate) enum Op {
    Prompt(Ask),
    Warm(u8),
    Interrupt(u8),
    Passivate(u8),
    /// Takes back one of the latest prompts.
    Withdraw(u8),
    Quarantine(u8),
    Unquarantine(u8),
    Delete(u8),
    /// Reads one of the latest prompts from a number on.
    Read(u8, u8),
    /// Lets time pass, in milliseconds.
    Advance(u32),
    Faults(Faults),
    Inject(Target),
    CrashCli(u8),
    FailStarts(u8),
    Restart(Restart),
}

#[derive(Clone, Debug)]
pub(crate) struct Ask {
    pub(crate) name: u8,
    pub(crate) millis: u32,
    pub(crate) kind: Kind,
    /// A key of the name, and whether the content is that of the first prompt with the key.
    pub(crate) key: Option<(u8, bool)>,
    pub(crate) continuations: u8,
    /// Seconds until the prompt may begin.
    pub(crate) delay: Option<u16>,
    /// Seconds for which the prompt may wait.
    pub(crate) wait: Option<u16>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Faults {
    Off,
    /// Some requests fail, lose their reply, or are slow.
    Random(u8),
    /// Replies are late, by up to this number of tenths of a second.
    Slow(u8),
    /// No request is answered. `true`: each is carried out all the same.
    Hang(bool),
    /// Each request fails. `true`: each is carried out all the same.
    Fail(bool),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    Admission,
    Name(u8),
}

/// A restart of the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Restart {
    /// The fleet drains within so many milliseconds.
    Drain(u16),
    /// The last handle is dropped.
    Abandon,
    /// The supervisor fails.
    Supervisor,
    /// Everything in the process ends at once.
    Kill,
    /// Another process takes the backend over while this one runs.
    TakeOver,
    /// The backend ends, and answers nothing for so many milliseconds. `true`: requests are carried out all the same.
    Backend(u16, bool),
}

/// A name: half of them are drawn alike, and of the others the first ones more often.
fn name() -> impl Strategy<Value = u8> {
    prop_oneof![0..NAMES, (0..NAMES, 0..NAMES).prop_map(|(a, b)| a.min(b))]
}

fn ask() -> impl Strategy<Value = Ask> {
    let millis = prop_oneof![4 => 0_u32..500, 4 => 500_u32..5_000, 1 => 5_000_u32..90_000];
    let kind = prop_oneof![6 => Just(Kind::Plain), 3 => Just(Kind::Call), 1 => Just(Kind::Crash)];
    let key = prop_oneof![2 => Just(None), 1 => (0_u8..4, any::<bool>()).prop_map(Some)];
    let continuations = prop_oneof![2 => Just(0_u8), 1 => 1_u8..3];
    let delay = prop_oneof![6 => Just(None), 1 => (1_u16..300).prop_map(Some)];
    let wait = prop_oneof![4 => Just(None), 1 => (0_u16..20).prop_map(Some)];
    (name(), millis, kind, key, continuations, delay, wait).prop_map(
        |(name, millis, kind, key, continuations, delay, wait)| Ask {
            name,
            millis,
            kind,
            key,
            continuations,
            delay,
            wait,
        },
    )
}

fn faults() -> impl Strategy<Value = Faults> {
    prop_oneof![
        4 => Just(Faults::Off),
        3 => any::<u8>().prop_map(Faults::Random),
        2 => (1_u8..40).prop_map(Faults::Slow),
        1 => any::<bool>().prop_map(Faults::Hang),
        1 => any::<bool>().prop_map(Faults::Fail),
    ]
}

fn restart() -> impl Strategy<Value = Restart> {
    let drain = prop_oneof![1 => Just(0), 1 => 1_u16..2_000, 3 => 2_000_u16..30_000];
    prop_oneof![
        3 => drain.prop_map(Restart::Drain),
        1 => Just(Restart::Abandon),
        2 => Just(Restart::Supervisor),
        2 => Just(Restart::Kill),
        2 => Just(Restart::TakeOver),
        2 => (1_u16..20_000, any::<bool>()).prop_map(|(millis, carried_out)| Restart::Backend(millis, carried_out)),
    ]
}

fn target() -> impl Strategy<Value = Target> {
    prop_oneof![Just(Target::Admission), name().prop_map(Target::Name), name().prop_map(Target::Name),]
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        40 => ask().prop_map(Op::Prompt),
        4 => name().prop_map(Op::Warm),
        5 => name().prop_map(Op::Interrupt),
        4 => name().prop_map(Op::Passivate),
        5 => any::<u8>().prop_map(Op::Withdraw),
        2 => name().prop_map(Op::Quarantine),
        3 => name().prop_map(Op::Unquarantine),
        2 => name().prop_map(Op::Delete),
        4 => (any::<u8>(), 0_u8..4).prop_map(|(which, seq)| Op::Read(which, seq)),
        20 => (1_u32..2_000).prop_map(Op::Advance),
        4 => (2_000_u32..70_000).prop_map(Op::Advance),
        4 => faults().prop_map(Op::Faults),
        2 => target().prop_map(Op::Inject),
        3 => name().prop_map(Op::CrashCli),
        1 => (1_u8..5).prop_map(Op::FailStarts),
        3 => restart().prop_map(Op::Restart),
    ]
}

/// The operation for a run in real time: shorter, without long failures of the backend.
pub(crate) fn hurried(mut step: Step) -> Step {
    match &mut step.op {
        Op::Prompt(ask) => (ask.millis, ask.delay) = (ask.millis / 100, None),
        Op::Advance(millis) => *millis /= 100,
        Op::Faults(faults @ (Faults::Hang(_) | Faults::Fail(_))) => *faults = Faults::Random(7),
        Op::Restart(Restart::Backend(millis, _)) => *millis /= 100,
        _ => {}
    }
    step
}

/// The operations of a case.
pub(crate) fn steps(count: usize) -> impl Strategy<Value = Vec<Step>> {
    let step = (op(), any::<bool>()).prop_map(|(op, settle)| Step { op, settle });
    prop::collection::vec(step, count)
}
