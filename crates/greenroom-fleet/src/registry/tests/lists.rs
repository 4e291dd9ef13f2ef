//! Pages read a few rows, however long their lists are.

use super::*;
use crate::query::lists::{PromptFilter, PromptQuery};

/// The answer of a request that only reads, and the rows that its last read has.
fn read<T>(world: &World, request: impl Fn(&Step<'_>) -> Result<T>) -> (T, usize) {
    let mut rows = Rows::default();
    loop {
        let attempt = rows::try_on(&rows, world.now, |step| request(step));
        assert!(attempt.commit.is_none());
        if attempt.lacking == Wanted::default() {
            return (attempt.answer.unwrap(), rows.len());
        }
        rows = read_rows(&world.map, attempt.all).unwrap();
    }
}

#[test]
fn a_page_of_the_newest_of_ten_thousand_prompts_reads_its_own_rows() {
    let mut world = World::new(1);
    let mut last = PromptId::new();
    for key in 0..10_000 {
        world.now = world.now.after(Duration::from_millis(1));
        let accept = Accept {
            bounds: QueueBounds { name: 20_000, tenant: 20_000, fleet: 20_000, ..Default::default() },
            ..accept("a", key, Duration::from_secs(3600))
        };
        last = accept.prompt;
        assert!(matches!(world.step(|step| step.accept(accept.clone())), Accepted::New(_)));
    }
    let name = crate::stage::name("a");
    let (page, rows) = read(&world, |step| step.prompts(name.clone(), PromptQuery::new()));
    assert_eq!((page.prompts.len(), page.prompts[0].record.id), (20, last));
    assert!(rows < 20 * 8, "{rows} rows");
    // The second page, and one of prompts that are not there.
    let query = PromptQuery::new().after(page.next.unwrap());
    let (page, rows) = read(&world, |step| step.prompts(name.clone(), query.clone()));
    assert_eq!(page.prompts[0].record.key.as_deref(), Some("9979"));
    assert!(rows < 20 * 8, "{rows} rows");
    let query = PromptQuery::new().only(PromptFilter::Ended);
    let (page, rows) = read(&world, |step| step.prompts(name.clone(), query.clone()));
    assert!(page.prompts.is_empty() && page.next.is_some());
    assert!(rows < 3 * 1024, "{rows} rows");
}

#[test]
fn the_questions_of_a_tenant_are_read_without_those_of_others() {
    let mut world = World::new(1);
    let (owner, prompt) = running(&mut world);
    for _ in 0..100 {
        let question = QuestionId::new();
        let ask = Ask { owner: owner.clone(), question, prompt, wait: WAIT, call: None, body: json!({}) };
        assert!(matches!(world.step(|step| step.ask(ask.clone())), Owned::Done(Some(_))));
    }
    let of = |of: &str| QuestionsOf::Tenant(crate::stage::tenant(of));
    let (questions, rows) = read(&world, |step| step.open_questions(of("other"), 10));
    assert!(questions.is_empty() && rows < 5, "{questions:?}, {rows} rows");
    let (questions, rows) = read(&world, |step| step.open_questions(of("acme"), 10));
    assert!(questions.len() == 10 && rows < 50, "{rows} rows");
}
