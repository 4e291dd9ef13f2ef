//! The commands, but for `top`.

use std::time::{Duration, UNIX_EPOCH};

use greenroom::callback::InquiryAnswer;
use greenroom_fleet::admin::Admin;
use greenroom_fleet::{
    FeedPage, FeedRetention, Name, NameFilter, NameQuery, NameRecord, PromptQuery, QuestionAnswer,
    QuestionQuery, Quota, Tenant, UsageQuery, Withdrawn,
};
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};

use crate::arguments::{
    Answer, Command, Feed, Move, Names, PromptStage, Prompts, QuotaOf, Unquarantine, UsageOf,
};
use crate::failure::Failure;
use crate::output::Output;
use crate::rows::{FeedRow, HoldRow, NameRow, NodeRow, ProcessRow, PromptRow, QuestionRow, State, UsageRow};
use crate::target::Fleet;

/// Sessions or entries of a request.
const PAGE: usize = 500;
/// The time after which `feed --follow` looks for further entries.
const LOOK: Duration = Duration::from_millis(500);
/// A day in milliseconds.
const DAY: u64 = 24 * 3600 * 1000;

type Done = Result<(), Failure>;

pub(crate) async fn run(admin: &Admin, command: Command, output: &mut Output) -> Done {
    match command {
        Command::Nodes => {
            let nodes: Vec<NodeRow> = admin.nodes().await?.iter().map(NodeRow::of).collect();
            Ok(output.page(&nodes)?)
        }
        Command::Names { names, state } => {
            list(admin, names, state.and_then(State::filter), state, output).await
        }
        Command::Stuck(names) => list(admin, names, Some(NameFilter::Stuck), None, output).await,
        Command::Prompts(prompts) => list_prompts(admin, prompts, output).await,
        Command::Questions { tenant, name, limit } => questions(admin, tenant, name, limit, output).await,
        Command::Answer(answer) => answer_question(admin, answer, output).await,
        Command::Quarantine { name, why } => {
            admin.quarantine(&name, &why).await?;
            let answer = json!({ "name": name, "quarantined": true });
            Ok(output.answer(&answer, &format!("{name} is quarantined"))?)
        }
        Command::Unquarantine(which) => unquarantine(admin, which, output).await,
        Command::Holds => {
            let holds: Vec<HoldRow> =
                admin.holds().await?.iter().map(|hold| HoldRow::of(hold, admin.now())).collect();
            Ok(output.page(&holds)?)
        }
        Command::Release { credential } => {
            if admin.release(credential.clone()).await?.is_none() {
                return Err(Failure::not_done(format!("the credential {credential} is not held")));
            }
            let answer = json!({ "credential": credential.to_string(), "released": true });
            Ok(output.answer(&answer, &format!("the prompts of the credential {credential} may begin"))?)
        }
        Command::Drain { node } => {
            if !admin.drain(node).await? {
                return Err(Failure::not_done(format!("no living node has the id {node}")));
            }
            Ok(output.answer(
                &json!({ "node": node, "asked_to_drain": true }),
                &format!("{node} was asked to drain"),
            )?)
        }
        Command::Drop { prompt, why } => {
            let (how, text) = match admin.drop_prompt(prompt, why).await? {
                Withdrawn::Unsent => ("unsent", "was taken out of its queue"),
                Withdrawn::Interrupted => {
                    ("interrupted", "had begun with an owner that was lost, and has ended")
                }
                Withdrawn::TooLate(_) => {
                    return Err(Failure::not_done(format!("the prompt {prompt} runs or has ended")));
                }
                Withdrawn::Gone => return Err(Failure::not_done(format!("no prompt has the id {prompt}"))),
            };
            let answer = json!({ "prompt": prompt, "outcome": how });
            Ok(output.answer(&answer, &format!("the prompt {prompt} {text}"))?)
        }
        Command::Move(to) => move_tenant(admin, to, output).await,
        Command::MoveToHost { name, host } => {
            admin.move_to_host(name.clone(), host.clone()).await?;
            Ok(output.answer(
                &json!({ "name": name, "host": host }),
                &format!("{name} is bound to the host {host}"),
            )?)
        }
        Command::ForgetHost { host } => forget_host(admin, &host, output).await,
        Command::Account { tenant } => account(admin, tenant, output).await,
        Command::Usage(of) => usage(admin, of, output).await,
        Command::Feed(feed) => read_feed(admin, feed, output).await,
        Command::Quota(which) => quota(admin, which, output).await,
        Command::Vacuum { age, most } => {
            let forgotten = admin.vacuum(age, most).await?;
            Ok(output
                .answer(&json!({ "forgotten": forgotten }), &format!("{forgotten} prompts are forgotten"))?)
        }
        Command::Processes { name } => {
            let left: Vec<ProcessRow> =
                admin.left_processes(name).await?.iter().map(ProcessRow::of).collect();
            Ok(output.page(&left)?)
        }
        Command::RemoveProcess { name, term } => {
            if !admin.remove_process(name.clone(), term).await? {
                let text =
                    format!("the owner of {name} under the term {term} is alive, and its record stays");
                return Err(Failure::not_done(text));
            }
            let answer = json!({ "name": name, "term": term, "removed": true });
            Ok(output.answer(&answer, &format!("no process of {name} is recorded under the term {term}"))?)
        }
        // `main` carries them out.
        Command::Top(_) | Command::Completions { .. } => Ok(()),
    }
}

/// Lists names page by page, so that a long list is not in memory as a whole. `only` narrows the requests, and `state` decides.
async fn list(
    admin: &Admin,
    names: Names,
    only: Option<NameFilter>,
    state: Option<State>,
    output: &mut Output,
) -> Done {
    let Names { tenant, prefix, label, mut after, limit } = names;
    let mut left = limit.unwrap_or(usize::MAX);
    while left > 0 {
        // A page may have few names in the state.
        let length = if state.is_some() { PAGE } else { left.min(PAGE) };
        let asked = query(tenant.as_ref(), only, after, length).prefix(&prefix);
        let asked = label.iter().fold(asked, |asked, (key, value)| asked.label(key, value));
        let found = admin.names(asked).await?;
        let rows = found.names.iter().map(|record| NameRow::of(record, admin.now()));
        let rows: Vec<_> =
            rows.filter(|row| state.is_none_or(|state| row.state == state)).take(left).collect();
        left -= rows.len();
        output.page(&rows)?;
        after = match found.next {
            Some(next) => Some(next),
            None => break,
        };
    }
    Ok(())
}

/// The names of a tenant, or of all, after a name.
pub(crate) fn query(
    tenant: Option<&Tenant>,
    only: Option<NameFilter>,
    after: Option<Name>,
    limit: usize,
) -> NameQuery {
    let query = tenant.cloned().into_iter().fold(NameQuery::new().limit(limit), NameQuery::tenant);
    let query = only.into_iter().fold(query, NameQuery::only);
    after.into_iter().fold(query, NameQuery::after)
}

/// Lists the prompts of a session page by page.
async fn list_prompts(admin: &Admin, prompts: Prompts, output: &mut Output) -> Done {
    let Prompts { name, state, label, mut after, limit: mut left, text } = prompts;
    let query = state.map(PromptStage::filter).into_iter().fold(PromptQuery::new(), PromptQuery::only);
    let query = label.into_iter().fold(query, |query, (key, value)| query.label(key, value));
    while left > 0 {
        let asked = after.into_iter().fold(query.clone().limit(left), PromptQuery::after);
        let found = admin.prompts(name.clone(), asked).await?;
        left = left.saturating_sub(found.prompts.len());
        let rows: Vec<PromptRow> = found.prompts.iter().map(|entry| PromptRow::of(entry, text)).collect();
        output.page(&rows)?;
        after = match found.next {
            Some(next) => Some(next),
            None => break,
        };
    }
    Ok(())
}

async fn unquarantine(admin: &Admin, which: Unquarantine, output: &mut Output) -> Done {
    let Unquarantine { name, kind: wanted, because, .. } = which;
    let Some(name) = name else {
        let fits = |_: &NameRecord, kind, why: &str| {
            wanted.is_none_or(|wanted| wanted == kind)
                && because.as_ref().is_none_or(|text| why.contains(text))
        };
        let lifted = admin.unquarantine_all(fits).await?;
        return Ok(output.answer(&json!({ "lifted": lifted }), &format!("{lifted} sessions may run again"))?);
    };
    if !admin.unquarantine(name.clone()).await? {
        return Err(Failure::not_done(format!("{name} is not quarantined")));
    }
    let answer = json!({ "name": name, "quarantined": false });
    Ok(output.answer(&answer, &format!("{name} may run again"))?)
}

async fn questions(
    admin: &Admin,
    tenant: Option<Tenant>,
    name: Option<Name>,
    limit: usize,
    output: &mut Output,
) -> Done {
    let mut query = QuestionQuery::new().limit(limit);
    if let Some(tenant) = tenant {
        query = query.tenant(tenant);
    }
    if let Some(name) = name {
        query = query.session(name);
    }
    let found = admin.questions(query).await?;
    let rows: Vec<QuestionRow> =
        found.iter().map(|question| QuestionRow::of(question, admin.now())).collect();
    Ok(output.page(&rows)?)
}

async fn answer_question(admin: &Admin, asked: Answer, output: &mut Output) -> Done {
    let Answer { question, given, by } = asked;
    let answer = match (given.allow, given.deny, given.answer) {
        (true, ..) => InquiryAnswer::allow(),
        (_, Some(why), _) => InquiryAnswer::deny(why),
        (_, _, Some(json)) => serde_json::from_str(&json)
            .map_err(|error| Failure::Usage(format!("`--answer` is no answer: {error}")))?,
        _ => InquiryAnswer::Dismissed,
    };
    let mut answer = QuestionAnswer::new(answer);
    if let Some(person) = by {
        answer = answer.by(person);
    }
    admin.answer(question, answer).await?;
    let text = format!("the question {question} is answered");
    Ok(output.answer(&json!({ "question": question, "answered": true }), &text)?)
}

async fn forget_host(admin: &Admin, host: &str, output: &mut Output) -> Done {
    let forgotten = admin.forget_host(host).await?;
    let text = format!(
        "{host} is forgotten, with files of {} sessions and {} processes; {} sessions are bound to it still",
        forgotten.files,
        forgotten.processes,
        forgotten.bound.len()
    );
    let answer = json!({
        "host": host, "files": forgotten.files, "processes": forgotten.processes, "bound": forgotten.bound,
    });
    Ok(output.answer(&answer, &text)?)
}

async fn account(admin: &Admin, tenant: Tenant, output: &mut Output) -> Done {
    let account = admin.tenant(tenant.clone()).await?;
    let [spent, reserved] = [account.spent, account.reserved].map(|micros| micros as f64 / 1e6);
    let text = format!(
        "{tenant}: {} sessions, {} live; {} prompts and {} reminders wait; {} bytes kept; {spent:.6} USD spent and \
         {reserved:.6} USD reserved in its period",
        account.names, account.live, account.queued, account.reminders, account.kept_bytes
    );
    let answer = json!({
        "tenant": tenant, "names": account.names, "live": account.live, "queued": account.queued,
        "reminders": account.reminders, "waiting_bytes": account.waiting_bytes, "kept_bytes": account.kept_bytes,
        "period": account.period.0, "spent_usd": spent, "reserved_usd": reserved,
    });
    Ok(output.answer(&answer, &text)?)
}

async fn usage(admin: &Admin, of: UsageOf, output: &mut Output) -> Done {
    let UsageOf { tenant, name, by_hour, days, since } = of;
    let since = since.unwrap_or_else(|| {
        let today = admin.now().0 / DAY * DAY;
        UNIX_EPOCH + Duration::from_millis(today.saturating_sub(u64::from(days - 1) * DAY))
    });
    let query = UsageQuery::since(since);
    let found = match name {
        Some(name) => admin.session_usage(name, query).await?,
        None => admin.usage(tenant, if by_hour { query.by_hour() } else { query }).await?,
    };
    let rows: Vec<UsageRow> = found.iter().map(UsageRow::of).collect();
    Ok(output.page(&rows)?)
}

/// Lists the feed page by page, or switches it on or off.
async fn read_feed(admin: &Admin, feed: Feed, output: &mut Output) -> Done {
    if feed.off || feed.keep.is_some() {
        admin.set_feed(feed.keep.map(|time| FeedRetention::new().time(time))).await?;
        let text = if feed.off { "the fleet keeps no feed" } else { "the fleet keeps a feed" };
        return Ok(output.answer(&json!({ "feed": !feed.off }), text)?);
    }
    let ended = async {
        let mut terminate = signal(SignalKind::terminate())?;
        tokio::select! {
            interrupted = tokio::signal::ctrl_c() => interrupted,
            _ = terminate.recv() => Ok(()),
        }
    };
    tokio::select! {
        ended = ended, if feed.follow => Ok(ended?),
        read = list_feed(admin, feed.clone(), output) => read,
    }
}

async fn list_feed(admin: &Admin, feed: Feed, output: &mut Output) -> Done {
    let (mut after, mut left) = (feed.after.unwrap_or_default(), feed.limit.unwrap_or(usize::MAX));
    while left > 0 {
        match admin.feed(feed.tenant.clone(), after.clone(), left.min(PAGE)).await? {
            FeedPage::Entries { entries, next } => {
                left = left.saturating_sub(entries.len());
                let rows: Vec<FeedRow> = entries.into_iter().map(FeedRow::of).collect();
                output.page(&rows)?;
                if next == after {
                    if !feed.follow {
                        break;
                    }
                    tokio::time::sleep(LOOK).await;
                }
                after = next;
            }
            FeedPage::Gap { .. } => {
                return Err(Failure::not_done(
                    "entries after this cursor are no longer kept, or it is of another fleet: read the records of what you keep again, \
                     and go on without `--after`",
                ));
            }
            FeedPage::Off => {
                return Err(Failure::not_done(
                    "the fleet keeps no feed: switch it on with `greenroom feed --keep 7d`, or with `FleetBuilder::feed` in its service",
                ));
            }
        }
    }
    Ok(())
}

/// Shows the quota that was set for a tenant, after it was changed.
async fn quota(admin: &Admin, which: QuotaOf, output: &mut Output) -> Done {
    let QuotaOf { tenant, set, remove } = which;
    if let Some(json) = set {
        let quota: Quota = serde_json::from_str(&json)
            .map_err(|error| Failure::Usage(format!("`--set` is no quota: {error}")))?;
        admin.set_quota(tenant.clone(), quota).await?;
    } else if remove {
        admin.set_quota(tenant.clone(), None).await?;
    }
    let quota = admin.quota(tenant.clone()).await?;
    let text = match &quota {
        Some(quota) => serde_json::to_string(quota).map_err(std::io::Error::other)?,
        None => format!("{tenant} has the quota of its service"),
    };
    Ok(output.answer(&json!({ "tenant": tenant, "quota": quota }), &text)?)
}

async fn move_tenant(admin: &Admin, to: Move, output: &mut Output) -> Done {
    let other = Fleet::of_move(&to)?.connect().await?;
    let moved = admin.move_tenant(&to.tenant, &other.admin).await;
    other.close().await;
    let moved = moved?;
    let text = format!("{} has moved: {} sessions, {} prompts", to.tenant, moved.names, moved.prompts);
    Ok(output
        .answer(&json!({ "tenant": to.tenant, "names": moved.names, "prompts": moved.prompts }), &text)?)
}
