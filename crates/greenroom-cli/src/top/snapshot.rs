//! A look at the fleet.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use greenroom_fleet::admin::Admin;
use greenroom_fleet::{BackendError, Name, QuestionQuery};
use serde::Serialize;

use super::Part;
use crate::rows::{NameRow, NodeRow};

/// Sessions of a page.
pub(super) const PAGE: usize = 200;
/// Stuck sessions and questions that are counted; more are shown as `100+`.
const COUNTED: usize = 100;

/// The fleet at a moment, without the sessions of other pages.
#[derive(Serialize)]
pub(super) struct Snapshot {
    pub(super) nodes: Vec<NodeRow>,
    /// Prompts that wait, of all tenants.
    pub(super) queued: u32,
    /// Stuck sessions and open questions of the tenant, or of all.
    pub(super) stuck: Count,
    pub(super) questions: Count,
    /// Tenants of the page.
    pub(super) tenants: Count,
    /// The page, in the order of the names.
    pub(super) names: Vec<NameRow>,
    /// The last session of the page, if there may be another page.
    pub(super) next: Option<Name>,
    #[serde(skip)]
    pub(super) took: Duration,
}

/// A number, and the note that there may be more.
#[derive(Serialize)]
pub(super) struct Count {
    pub(super) count: usize,
    pub(super) or_more: bool,
}

impl std::fmt::Display for Count {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}{}", self.count, if self.or_more { "+" } else { "" })
    }
}

pub(super) async fn look(admin: Admin, part: Part) -> Result<Snapshot, BackendError> {
    let begun = Instant::now();
    let nodes = admin.nodes().await?;
    let queued = admin.queued().await?;
    let stuck = admin.stuck(part.tenant.clone(), None, COUNTED).await?;
    // A query of a tenant would read the questions of all others.
    let questions = admin.questions(QuestionQuery::new().limit(COUNTED)).await?;
    let after = part.pages.last().cloned();
    let names = match part.stuck {
        true => admin.stuck(part.tenant.clone(), after, PAGE).await?,
        false => admin.names(part.tenant.clone(), after, PAGE).await?,
    };
    let is_whole = names.len() < PAGE;
    let of_tenant = questions
        .iter()
        .filter(|question| part.tenant.as_ref().is_none_or(|tenant| tenant == question.name.tenant()));
    let tenants: BTreeSet<_> = names.iter().map(|record| record.name.tenant()).collect();
    Ok(Snapshot {
        nodes: nodes.iter().map(NodeRow::of).collect(),
        queued,
        stuck: Count { count: stuck.len(), or_more: stuck.len() == COUNTED },
        questions: Count { count: of_tenant.count(), or_more: questions.len() == COUNTED },
        tenants: Count { count: tenants.len(), or_more: !is_whole || !part.pages.is_empty() },
        next: names.last().filter(|_| !is_whole).map(|last| last.name.clone()),
        names: names.iter().map(|record| NameRow::of(record, admin.now())).collect(),
        took: begun.elapsed(),
    })
}
