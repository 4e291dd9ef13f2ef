//! Messages of turns, and the rows that they share.

use super::*;

#[test]
fn many_messages_are_forgotten_in_steps_and_unreadable_at_once() {
    let mut world = World::new(1);
    let (owner, prompt) = running(&mut world);
    for first_seq in 1..=600 {
        keep(&mut world, &owner, prompt, first_seq, &["1"]);
    }
    let _: Owned<bool> = world.step(|step| step.release(owner.clone()));
    assert_eq!(world.rows(Table::Messages).len(), 600);
    for left in [600 - 256, 600 - 512, 0] {
        assert_eq!(world.step(|step| step.forget(Timestamp(u64::MAX), 10)), 1);
        assert_eq!(world.rows(Table::Messages).len(), left);
        assert_eq!(world.step(|step| step.messages(prompt, 0, 10)), Vec::new());
        assert!(world.step(|step| step.prompt_record(prompt)).is_none());
    }
    assert_eq!(world.step(|step| step.forget(Timestamp(u64::MAX), 10)), 0);
}

/// Keeps messages of a turn that runs.
fn keep(world: &mut World, owner: &Ownership, prompt: PromptId, first_seq: u64, messages: &[&str]) {
    let last = first_seq + messages.len() as u64 - 1;
    let messages = messages.iter().map(ToString::to_string).collect();
    let append = Append { owner: owner.clone(), prompt, first_seq, messages, bound: 1 << 30 };
    assert_eq!(world.step(|step| step.append(append.clone())), Owned::Done(Some(last)));
}

#[test]
fn messages_that_are_kept_together_share_rows_of_bounded_size() {
    let mut world = World::new(1);
    let (owner, prompt) = running(&mut world);
    keep(&mut world, &owner, prompt, 1, &["1"; 130]);
    assert_eq!(world.rows(Table::Messages).len(), 3, "64 messages in a row");
    let (long, longer) = ("x".repeat(8_000), "y".repeat(100_000));
    keep(&mut world, &owner, prompt, 131, &[&long, &long, &longer, "1", &long]);
    let mut lengths: Vec<_> = world.rows(Table::Messages).into_values().map(|row| row.len()).collect();
    lengths.drain(..3);
    assert_eq!(lengths, [8_009, 8_009, 100_011, 8_013], "16 KB in a row, or one message");
    // A repeated request with messages behind them adds these alone.
    keep(&mut world, &owner, prompt, 134, &["1", &long, "last"]);
    assert_eq!(world.rows(Table::Messages).len(), 8);
    assert_eq!(world.step(|step| step.messages(prompt, 135, 2)).last().unwrap().json, "last");
}

#[test]
fn messages_are_read_from_any_number_however_they_share_rows() {
    let mut world = World::new(1);
    let (owner, prompt) = running(&mut world);
    let all: Vec<StoredText> =
        (1..=200).map(|seq| StoredText { number: seq, json: format!("\"ä{seq}\"") }).collect();
    let mut kept = 0;
    for together in [1, 1, 70, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 100, 16] {
        let texts: Vec<&str> =
            all[kept..kept + together].iter().map(|message| message.json.as_str()).collect();
        keep(&mut world, &owner, prompt, kept as u64 + 1, &texts);
        kept += together;
    }
    assert_eq!(kept, all.len());
    for after in 0..=201 {
        for limit in [0, 1, 2, 7, 64, 199, usize::MAX] {
            let read = world.step(|step| step.messages(prompt, after as u64, limit));
            let expected = all.get(after..).unwrap_or_default();
            assert_eq!(read, expected[..limit.min(expected.len())], "{limit} after {after}");
        }
    }
    assert_eq!(world.step(|step| step.messages(prompt, u64::MAX, 10)), []);
}

#[test]
fn a_page_of_messages_has_a_megabyte_or_so() {
    let mut world = World::new(1);
    let (owner, prompt) = running(&mut world);
    let (long, longer) = ("x".repeat(400_000), "y".repeat(2 << 20));
    keep(&mut world, &owner, prompt, 1, &[&long, &long, &long, &long, &longer, "1"]);
    let mut page = |after| world.step(|step| step.messages(prompt, after, usize::MAX)).len();
    assert_eq!([page(0), page(3), page(4), page(5), page(6)], [3, 2, 1, 1, 0]);
}

#[test]
fn a_spoilt_row_of_messages_is_an_error_and_no_panic() {
    let mut world = World::new(1);
    let (_, prompt) = running(&mut world);
    let key = Key::of(Table::Messages).prompt(prompt).number(2);
    let rows = [
        "",
        "[",
        "[[",
        "[[]]",
        "[[1],1",
        "[[2],1]",
        "[[1,1],1]",
        "[[1],1]]",
        "[[1,1,1],1,1,1]",
        "[[-1],1]",
        "[[1],ä]",
        "[[18446744073709551615],1]",
        "{}",
    ];
    for row in rows {
        world.map.put(key.bytes(), row.as_bytes()).unwrap();
        let step = world.try_step(|step| step.messages(prompt, 0, 10));
        assert_eq!(step.unwrap_err().kind(), crate::error::BackendErrorKind::Damaged, "{row}");
    }
    world.map.put(key.bytes(), b"[[1,2],1,22]").unwrap();
    assert_eq!(world.step(|step| step.messages(prompt, 0, 10)).len(), 2);
}
