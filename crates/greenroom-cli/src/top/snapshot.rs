//! A look at the fleet.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use greenroom_fleet::admin::Admin;
use greenroom_fleet::{BackendError, Name, NameFilter, NamePage, QuestionQuery};
use serde::Serialize;

use super::Part;
use crate::commands::query;
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
    let (tenant, is_stuck) = (part.tenant.as_ref(), Some(NameFilter::Stuck));
    let stuck = admin.names(query(tenant, is_stuck, None, COUNTED)).await?.names;
    let of = tenant.cloned().into_iter().fold(QuestionQuery::new().limit(COUNTED), QuestionQuery::tenant);
    let questions = admin.questions(of).await?;
    let after = part.pages.last().cloned();
    let NamePage { names, next, .. } =
        admin.names(query(tenant, is_stuck.filter(|_| part.stuck), after, PAGE)).await?;
    let tenants: BTreeSet<_> = names.iter().map(|record| record.name.tenant()).collect();
    Ok(Snapshot {
        nodes: nodes.iter().map(NodeRow::of).collect(),
        queued,
        stuck: Count { count: stuck.len(), or_more: stuck.len() == COUNTED },
        questions: Count { count: questions.len(), or_more: questions.len() == COUNTED },
        tenants: Count { count: tenants.len(), or_more: next.is_some() || !part.pages.is_empty() },
        next,
        names: names.iter().map(|record| NameRow::of(record, admin.now())).collect(),
        took: begun.elapsed(),
    })
}
