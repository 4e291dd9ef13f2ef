//! Lists of sessions and of prompts that are filtered, in pipes.

use std::time::Duration;

use greenroom_fleet::backend::{Backend, Requests};
use greenroom_fleet::{
    ActivationFailed, AttemptId, Begin, Cause, Counted, Credential, Finish, Labels, Marked, Owned, Pause,
    PromptOutcome, QuarantineKind, Quota, Reject, Usage, Withdrawn,
};
use serde_json::{Value, json};

use crate::stage::{
    FOREVER, Service, accept, accepted, asking, content, joined, name, owned, quarantined, used,
};

fn column(out: &str, column: usize) -> Vec<&str> {
    out.lines().map(|line| line.split('\t').nth(column).unwrap()).collect()
}

#[tokio::test]
async fn sessions_are_listed_by_state_as_they_are_shown() {
    let service = Service::start().await;
    let backend = &service.backend;
    let node = joined(backend, "here").await;
    accepted(backend, "acme/awake").await;
    owned(backend, "acme/awake", node).await;
    let dropped = accepted(backend, "acme/asleep").await;
    assert_eq!(backend.withdraw(dropped).await.unwrap(), Withdrawn::Unsent);
    accepted(backend, "acme/deleting").await;
    assert_eq!(backend.delete(name("acme/deleting")).await.unwrap(), Marked::Done);
    accepted(backend, "acme/failing").await;
    let owner = owned(backend, "acme/failing", node).await;
    let counted = Some(Counted { kind: QuarantineKind::Activations, period: FOREVER, intensity: 9 });
    let failed = ActivationFailed { owner, why: "no template".to_owned(), counted };
    assert!(matches!(backend.activation_failed(failed).await.unwrap(), Owned::Done(_)));
    // Its prompt waits, but it is shown as quarantined.
    accepted(backend, "acme/quarantined").await;
    quarantined(backend, "acme/quarantined", "it loops").await;
    asking(backend, "acme/running", node, "Which size?").await;
    accepted(backend, "acme/waiting").await;

    let all = service.run(&["names"]).await.done();
    let states = ["asleep", "awake", "deleting", "failing", "quarantined", "running", "waiting"];
    assert_eq!(column(&all, 1), states);
    for state in states {
        let one = service.run(&["names", "--state", state]).await.done();
        assert_eq!(column(&one, 0), [format!("acme/{state}")], "{one}");
    }
    assert_eq!(service.run(&["names", "--state", "moving"]).await.done(), "");
    for wrong in [["names", "--state", "owned"], ["stuck", "--state", "failing"]] {
        assert_eq!(service.run(&wrong).await.code, 2, "{wrong:?}");
    }
}

#[tokio::test]
async fn sessions_are_listed_by_prefix_label_and_state_together() {
    let service = Service::start().await;
    let backend = &service.backend;
    for session in ["acme/a-1", "acme/a-2", "acme/a-3", "acme/b-1", "beta/a-4"] {
        accepted(backend, session).await;
    }
    quarantined(backend, "acme/a-3", "it loops").await;
    for session in ["acme/a-2", "acme/a-3", "acme/b-1", "beta/a-4"] {
        let labels = Labels::new().with("plan", "pro=\u{1b}[2J");
        assert!(backend.set_labels(name(session), labels).await.unwrap());
    }
    let names = async |arguments: &[&str]| {
        let out = service.run(&[&["names"], arguments].concat()).await.done();
        column(&out, 0).into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(names(&["--prefix", "a-"]).await, ["acme/a-1", "acme/a-2", "acme/a-3", "beta/a-4"]);
    assert_eq!(names(&["--prefix", "a-", "--tenant", "beta"]).await, ["beta/a-4"]);
    let pro = ["--label", "plan=pro=\u{1b}[2J"];
    assert_eq!(names(&pro).await, ["acme/a-2", "acme/a-3", "acme/b-1", "beta/a-4"]);
    assert_eq!(names(&["--label", "plan=pro"]).await, Vec::<String>::new());
    let waiting = [&pro[..], &["--prefix", "a-", "--state", "waiting"]].concat();
    assert_eq!(names(&waiting).await, ["acme/a-2", "beta/a-4"]);
    assert_eq!(names(&[&waiting[..], &["--limit", "1"]].concat()).await, ["acme/a-2"]);
    assert_eq!(names(&[&waiting[..], &["--after", "acme/a-2"]].concat()).await, ["beta/a-4"]);
    let stuck = service.run(&["stuck", "--json", "--prefix", "a-", pro[0], pro[1]]).await.done();
    assert!(!stuck.contains('\u{1b}'), "{stuck:?}");
    let stuck: Value = serde_json::from_str(&stuck).unwrap();
    assert_eq!((&stuck["name"], &stuck["labels"]["plan"]), (&json!("acme/a-3"), &json!("pro=\u{1b}[2J")));
    for wrong in [&["--label", "plan"][..], &["--label", "=pro"], &["--label", "a=1", "--label", "b=2"]] {
        assert_eq!(service.run(&[&["names"], wrong].concat()).await.code, 2, "{wrong:?}");
    }
}

#[tokio::test]
async fn a_state_is_found_behind_many_sessions_in_others() {
    let service = Service::start().await;
    for number in 0..1200 {
        let prompt = accepted(&service.backend, &format!("acme/{number:05}")).await;
        if number >= 1198 {
            assert_eq!(service.backend.withdraw(prompt).await.unwrap(), Withdrawn::Unsent);
        }
    }
    let asleep = service.run(&["names", "--state", "asleep", "--limit", "1"]).await.done();
    assert_eq!(column(&asleep, 0), ["acme/01198"]);
    assert_eq!(service.run(&["names", "--state", "waiting"]).await.done().lines().count(), 1198);
}

#[tokio::test]
async fn prompts_of_a_session_are_listed_and_one_that_waits_is_dropped() {
    let service = Service::start().await;
    let backend = &service.backend;
    let node = joined(backend, "here").await;
    let mut usage = Usage::default();
    usage.cost = 1_500_000;
    used(backend, "acme/a", node, usage).await;
    let due = Backend::now(backend).after(Duration::from_secs(3600));
    let later = accept(backend, "acme/a", |accept| accept.not_before = Some(due)).await.to_string();
    let waits = accept(backend, "acme/a", |accept| {
        accept.labels = Labels::new().with("ticket", "881").with("plan", "a b");
        accept.key = Some("order-7".to_owned());
    })
    .await;
    let (record, waits) = (backend.prompt_record(waits).await.unwrap().unwrap(), waits.to_string());
    accepted(backend, "acme/b").await;

    let plain = service.run(&["prompts", "acme/a"]).await.done();
    let lines: Vec<Vec<_>> = plain.lines().map(|line| line.split('\t').collect()).collect();
    assert_eq!((lines.len(), lines[0][0], lines[1][0]), (3, waits.as_str(), later.as_str()));
    let moment = |millis: u64| {
        humantime::format_rfc3339_seconds(std::time::UNIX_EPOCH + Duration::from_millis(millis)).to_string()
    };
    let accepted_at = moment(record.accepted_at.0);
    assert_eq!(lines[0][1..], ["waiting", &accepted_at, "-", "-", "-", "-", "plan=a b ticket=881"]);
    assert_eq!(lines[1][1..2], ["waiting"]);
    assert_eq!(lines[1][3..], [moment(due.0).as_str(), "-", "-", "-", "-"]);
    assert_eq!(lines[2][1], "ended");
    assert!(lines[2][4].ends_with('Z'), "{lines:?}");
    assert_eq!(lines[2][5..], ["completed", "1.500000", "-"]);

    let prompts = async |arguments: &[&str]| {
        service.run(&[&["prompts", "acme/a", "--json"], arguments].concat()).await.objects()
    };
    let all = prompts(&[]).await;
    let cursor = all[0]["cursor"].as_str().unwrap();
    assert_eq!(
        all[0],
        json!({
            "id": waits, "state": "waiting", "accepted_at": record.accepted_at, "due_at": record.due_at,
            "expires_at": record.expires_at, "begun_at": null, "ended_at": null, "outcome": null, "turns": 0,
            "unmetered": 0, "cost_usd": 0.0, "key": "order-7", "labels": { "plan": "a b", "ticket": "881" },
            "cursor": cursor,
        })
    );
    assert_eq!((&all[2]["outcome"], &all[2]["cost_usd"]), (&json!("completed"), &json!(1.5)));
    assert!(all[2]["ended_at"].as_u64() >= all[2]["accepted_at"].as_u64());
    assert_eq!(prompts(&["--state", "waiting"]).await, all[..2]);
    assert_eq!(prompts(&["--state", "ended"]).await, all[2..]);
    assert_eq!(prompts(&["--state", "running"]).await, all[..0]);
    assert_eq!(prompts(&["--label", "ticket=881"]).await, all[..1]);
    assert_eq!(prompts(&["--limit", "1"]).await, all[..1]);
    assert_eq!(prompts(&["--after", cursor]).await, all[1..]);
    assert_eq!(prompts(&["--after", cursor, "--state", "waiting", "--limit", "1"]).await, all[1..2]);
    assert_eq!(service.run(&["prompts", "acme/nobody"]).await.done(), "");
    for wrong in [["--state", "asleep"], ["--label", "ticket"], ["--after", "yesterday"]] {
        assert_eq!(service.run(&[&["prompts", "acme/a"], &wrong[..]].concat()).await.code, 2, "{wrong:?}");
    }

    service.run(&["drop", &waits, "sent by a loop"]).await.done();
    let ended = prompts(&["--state", "ended", "--limit", "1"]).await;
    assert_eq!((&ended[0]["id"], &ended[0]["outcome"]), (&json!(waits), &json!("unsent")));
    asking(backend, "acme/c", node, "Which size?").await;
    let running = service.run(&["prompts", "acme/c", "--json", "--state", "running"]).await.objects();
    assert!(running[0]["begun_at"].as_u64() >= running[0]["accepted_at"].as_u64(), "{running:?}");
}

#[tokio::test]
async fn the_text_of_a_prompt_is_shown_on_demand_only() {
    let service = Service::start().await;
    let backend = &service.backend;
    let evil = format!("\n\u{1b}]0;secret\u{7}\u{202e}\tone\\{}\nsecond line", "x".repeat(100));
    for text in ["short", &evil] {
        accept(backend, "acme/a", |accept| {
            accept.content = content(text);
            accept.labels = Labels::new().with("note", "\u{1b}[2J");
        })
        .await;
    }
    accept(backend, "acme/b", |accept| accept.content.prompt = json!(["of another version"])).await;
    let without_text = service.run(&["prompts", "acme/b", "--text"]).await.done();
    assert_eq!(column(&without_text, 8), ["-"]);
    let without_text = service.run(&["prompts", "acme/b", "--text", "--json"]).await.objects();
    assert_eq!(without_text[0].get("text"), Some(&Value::Null));
    for flag in [None, Some("--json")] {
        let run = async |text: Option<&str>| {
            let arguments = ["prompts", "acme/a"].into_iter().chain(text).chain(flag);
            service.run(&arguments.collect::<Vec<_>>()).await.done()
        };
        let (without, with) = (run(None).await, run(Some("--text")).await);
        assert!(!without.contains("secret") && !without.contains("short"), "{without}");
        for out in [&without, &with] {
            assert!(!out.contains(['\u{1b}', '\u{7}', '\u{202e}']), "{out:?}");
            assert_eq!(out.lines().count(), 2, "{out}");
        }
        if flag.is_some() {
            let texts: Vec<Value> = with.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
            assert_eq!((&texts[0]["text"], &texts[1]["text"]), (&json!(evil), &json!("short")));
            assert!(!without.contains("\"text\""), "{without}");
        } else {
            assert_eq!(column(&without, 7), [r"note=\u{1b}[2J"; 2]);
            // 80 characters, and 17 of them are before the `x`.
            let line = format!(r"\u{{1b}}]0;secret\u{{7}}\u{{202e}}\tone\\{}…", "x".repeat(80 - 17));
            assert_eq!(column(&with, 8), [line.as_str(), "short"]);
        }
    }
}

#[tokio::test]
async fn prompts_of_a_long_conversation_are_read_in_pages() {
    let service = Service::start().await;
    let mut newest = Vec::new();
    for _ in 0..450 {
        newest.insert(0, accepted(&service.backend, "acme/a").await.to_string());
    }
    let all = service.run(&["prompts", "acme/a", "--limit", "1000"]).await.done();
    assert_eq!(column(&all, 0), newest);
    let some = service.run(&["prompts", "acme/a", "--limit", "201"]).await.done();
    assert_eq!(column(&some, 0), newest[..201]);
    assert_eq!(column(&service.run(&["prompts", "acme/a"]).await.done(), 0), newest[..100]);
}

#[tokio::test]
async fn held_credentials_are_listed_and_released() {
    let service = Service::start().await;
    let backend = &service.backend;
    let node = joined(backend, "here").await;
    let prompt = accepted(backend, "acme/a").await;
    let (owner, attempt) = (owned(backend, "acme/a", node).await, AttemptId::new());
    let credential =
        Credential::OfTenant { tenant: owner.name.tenant().clone(), profile: "support".to_owned() };
    let (quota, begun) = (Quota::default(), Some(credential.clone()));
    let begun = begun.map(|credential| greenroom_fleet::UsedCredential { credential, may_try: true });
    let begin = Begin { owner: owner.clone(), prompt, attempt, quota, credential: begun };
    assert!(matches!(backend.begin(begin).await.unwrap(), Owned::Done(Some(_))));
    let outcome =
        PromptOutcome::Failed { kind: "no_credit".to_owned(), message: String::new(), result: None };
    let finish = Finish { owner, prompt, attempt, outcome, cost: None, usage: None, quarantine: None };
    let rejected = Reject {
        finish,
        credential,
        cause: Cause::NoCredit,
        why: "Credit balance is too low".to_owned(),
        resets_at: None,
        pause: Pause { first: FOREVER, longest: FOREVER, factor: 1.0 },
        again: true,
    };
    assert_eq!(backend.reject(rejected).await.unwrap(), Owned::Done(true));

    let held = service.run(&["holds"]).await.done();
    assert_eq!((column(&held, 0), column(&held, 4)), (vec!["tenant:acme/support"], vec!["1"]), "{held}");
    assert_eq!(column(&held, 5), ["Credit balance is too low"]);
    let json: Value = service.run(&["holds", "--json"]).await.objects().remove(0);
    assert_eq!((&json["cause"], &json["resets_at"]), (&json!("no_credit"), &json!(null)), "{json}");
    let released = service.run(&["release", "tenant:acme/support"]).await.done();
    assert_eq!(released, "the prompts of the credential tenant:acme/support may begin\n");
    assert_eq!(service.run(&["holds"]).await.done(), "");
    assert_eq!(service.run(&["release", "key:another"]).await.code, 1);
    assert_eq!(service.run(&["release", "another"]).await.code, 2);
}
