//! Turns that are parked and go on, by chance.

use super::*;

impl World {
    pub(super) fn park_or_hand_over(&mut self) {
        if self.below(2) == 0 {
            let Some((owner, prompt, attempt)) = self.one(|world| &world.begun) else { return };
            let cost = (self.below(2) == 0).then_some(3);
            let park = Park { owner, prompt, attempt, cost, usage: self.usage() };
            let is_parked = self.twice(|step| step.park(park.clone()));
            self.parked += usize::from(is_parked == Owned::Done(true));
            return;
        }
        let Some(owner) = self.one(|world| &world.owners) else { return };
        let Some(question) = self.one(|world| &world.questions) else { return };
        if self.twice(|step| step.hand_over(owner.clone(), question)) == Owned::Done(true) {
            let first = self.handed.entry(question).or_insert_with(|| owner.clone());
            assert_eq!(*first, owner, "two CLIs got the decision on one call");
        }
    }
}
