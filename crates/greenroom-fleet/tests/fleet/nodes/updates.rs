//! Pages on another node than the owner's.

use futures_util::FutureExt;
use greenroom::callback::InquiryAnswer;
use greenroom_fleet::{PromptId, TurnUpdates, Update, UpdateId};
use tokio::time::sleep;

use super::*;
use crate::scenes::{asks, secs, send};

/// Two nodes that know each other, the first of which owns the session `a`.
async fn two(world: &World) -> [Node; 2] {
    let first = Node::new(world).await;
    asks(&first.fleet, "a", "one").await;
    let second = Node::new(world).await;
    sleep(secs(2)).await;
    [first, second]
}

/// A page, as it shows a turn.
#[derive(Default)]
struct Page {
    /// Deltas since the last text.
    deltas: String,
    texts: Vec<String>,
    seen: Option<UpdateId>,
    asked: usize,
    decided: usize,
    outcomes: usize,
}

impl Page {
    fn updates(&self, node: &Node, prompt: PromptId) -> TurnUpdates {
        node.fleet.operator().turn(prompt).updates().after(self.seen)
    }

    /// Takes updates until the page has what is waited for.
    async fn until(&mut self, updates: &mut TurnUpdates, done: impl Fn(&Page) -> bool) {
        while !done(self) {
            match in_time("an update", updates.next()).await.expect("more updates").unwrap() {
                update @ Update::Delta { .. } => self.write(update),
                update => self.take(update),
            }
        }
    }

    fn write(&mut self, update: Update) {
        let Update::Delta { text, starts } = update else { unreachable!() };
        if starts {
            self.deltas.clear();
        }
        self.deltas += &text;
    }

    fn take(&mut self, update: Update) {
        if let Some(id) = update.id() {
            assert!(self.seen < Some(id), "{id} comes after {:?}", self.seen);
            self.seen = Some(id);
        }
        match update {
            Update::Text { text, .. } => {
                assert!(text.contains(&self.deltas), "{text:?} without {:?}", self.deltas);
                self.deltas.clear();
                self.texts.push(text);
            }
            Update::Asked { .. } => self.asked += 1,
            Update::Decided { .. } => self.decided += 1,
            Update::Outcome { .. } => self.outcomes += 1,
            _ => {}
        }
    }
}

const WRITTEN: &str = "0 1 2 3 4 5 6 7 8 9 ";

#[tokio::test(start_paused = true)]
async fn a_page_on_another_node_shows_text_while_it_is_written() {
    let world = World::new();
    let [first, second] = two(&world).await;
    // The page is there before the turn begins.
    let turn = send(&second.fleet, "a", "write 10").await.prompt_id();
    let (mut page, mut here) = (Page::default(), Page::default());
    let mut updates = page.updates(&second, turn);
    let mut beside = here.updates(&first, turn);
    // Both pages read before the first word.
    assert!(beside.next().now_or_never().is_none());
    for number in 0..9 {
        let last = format!("{number} ");
        page.until(&mut updates, |page| page.deltas.ends_with(&last)).await;
        here.until(&mut beside, |page| page.deltas.ends_with(&last)).await;
        assert_eq!(page.deltas, here.deltas);
        assert_eq!(page.deltas, WRITTEN[..2 * (number + 1)]);
    }
    for (page, updates) in [(&mut page, &mut updates), (&mut here, &mut beside)] {
        page.until(updates, |page| page.outcomes == 1).await;
        assert_eq!(page.texts, [WRITTEN, "re: write 10"]);
        assert!(updates.next().await.is_none(), "the outcome is the last update");
    }
    // Behind the outcome nothing comes, also for a browser that connects again.
    assert!(page.updates(&second, turn).next().await.is_none());
    assert_eq!(page.seen, Some(UpdateId::END));
}

#[tokio::test(start_paused = true)]
async fn a_page_that_is_loaded_again_elsewhere_shows_deltas_from_then_on_and_each_text_once() {
    for deaf in [false, true] {
        let world = World::new();
        let [first, second] = two(&world).await;
        let third = if deaf { Node::deaf(&world).await } else { Node::new(&world).await };
        sleep(secs(2)).await;
        let turn = send(&first.fleet, "a", "write 10").await.prompt_id();
        let mut page = Page::default();
        let mut updates = page.updates(&second, turn);
        page.until(&mut updates, |page| page.deltas.ends_with("4 ")).await;
        drop(updates);
        page.deltas.clear();
        let mut updates = page.updates(&third, turn);
        if !deaf {
            page.until(&mut updates, |page| page.deltas.ends_with("8 ")).await;
            assert_eq!(page.deltas, "5 6 7 8 ");
        }
        page.until(&mut updates, |page| !page.texts.is_empty()).await;
        drop(updates);
        let mut updates = page.updates(&second, turn);
        page.until(&mut updates, |page| page.outcomes == 1).await;
        assert_eq!(page.texts, [WRITTEN, "re: write 10"], "deaf: {deaf}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_page_on_another_node_shows_a_question_and_its_answer() {
    for deaf in [false, true] {
        let world = World::new();
        let [first, _] = two(&world).await;
        let other = if deaf { Node::deaf(&world).await } else { Node::new(&world).await };
        let turn = send(&first.fleet, "a", "ask").await.prompt_id();
        let mut page = Page::default();
        let mut updates = page.updates(&other, turn);
        page.until(&mut updates, |page| page.asked == 1).await;
        let open = first.fleet.operator().questions(greenroom_fleet::QuestionQuery::new()).await.unwrap();
        first.fleet.operator().answer(open[0].id, InquiryAnswer::allow()).await.unwrap();
        page.until(&mut updates, |page| page.outcomes == 1).await;
        assert_eq!((page.asked, page.decided, &*page.texts), (1, 1, &["re: ask allow".to_owned()][..]));
    }
}

#[tokio::test(start_paused = true)]
async fn a_page_learns_of_a_turn_whose_owner_was_lost() {
    let world = World::new();
    let [first, second] = two(&world).await;
    let turn = send(&first.fleet, "a", "write 1000").await.prompt_id();
    let mut page = Page::default();
    let mut updates = page.updates(&second, turn);
    page.until(&mut updates, |page| page.deltas.ends_with("4 ")).await;
    first.kill(&world).await;
    let mut outcome = None;
    while let Some(update) = crate::wait::within(secs(60), updates.next()).await {
        if let Update::Outcome { outcome: end, .. } = update.unwrap() {
            assert!(outcome.replace(end).is_none(), "two outcomes");
        }
    }
    assert_eq!(outcome.unwrap().word(), "interrupted");
}
