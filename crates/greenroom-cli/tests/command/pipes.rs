//! The command in pipes.

use std::sync::atomic::Ordering;

use greenroom_fleet::backend::Requests;
use greenroom_fleet::{Name, NodeState, Owned};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};

use crate::stage::{Service, accepted, asking, bound, joined, name, owned, quarantined, run, started};
use crate::wait::in_time;

fn cells(line: &str) -> Vec<&str> {
    line.split('\t').collect()
}

#[tokio::test]
async fn lists_have_a_line_with_tabs_or_an_object_for_each_item() {
    let service = Service::start().await;
    let backend = &service.backend;
    let node = joined(backend, "here").await;
    let question = asking(backend, "acme/asks", node, "Which size?").await;
    accepted(backend, "acme/waits").await;
    accepted(backend, "beta/bad").await;
    quarantined(backend, "beta/bad", "it loops").await;

    let nodes = service.run(&["nodes"]).await.done();
    let id = node.to_string();
    assert_eq!(cells(nodes.trim_end_matches('\n')), [id.as_str(), "here", "up", "0s", "1", "8", ""]);
    let nodes = service.run(&["nodes", "--json"]).await.objects();
    assert_eq!(
        (&nodes[0]["id"], &nodes[0]["live"], &nodes[0]["capacity"]),
        (&json!(id), &json!(1), &json!(8))
    );

    let names = service.run(&["names"]).await.done();
    let lines: Vec<_> = names.lines().map(cells).collect();
    assert_eq!(lines.iter().map(|line| line[0]).collect::<Vec<_>>(), ["acme/asks", "acme/waits", "beta/bad"]);
    assert_eq!(lines.iter().map(|line| line[1]).collect::<Vec<_>>(), ["running", "waiting", "quarantined"]);
    assert_eq!((lines[0][7], lines[2][8]), (id.as_str(), "it loops"));
    let names = service.run(&["names", "--json", "--tenant", "acme", "--after", "acme/asks"]).await.objects();
    assert_eq!(names.len(), 1);
    assert_eq!((&names[0]["name"], &names[0]["queued"]), (&json!("acme/waits"), &json!(1)));
    assert_eq!(service.run(&["names", "--limit", "2"]).await.done().lines().count(), 2);

    let stuck = service.run(&["stuck"]).await.done();
    assert!(stuck.starts_with("beta/bad\tquarantined\t"), "{stuck}");
    assert_eq!(service.run(&["--json", "stuck"]).await.objects()[0]["why"], "it loops");
    assert_eq!(service.run(&["stuck", "--tenant", "acme"]).await.done(), "");

    let questions = service.run(&["questions"]).await.done();
    let line = cells(questions.trim_end());
    assert_eq!((line[0], line[1], line[4]), (question.to_string().as_str(), "acme/asks", "Which size?"));
    let questions = service.run(&["questions", "--json", "--tenant", "acme"]).await.objects();
    assert_eq!((&questions[0]["kind"], &questions[0]["name"]), (&json!("questions"), &json!("acme/asks")));
    assert_eq!(service.run(&["questions", "--name", "acme/waits"]).await.done(), "");

    let top = service.run(&["top", "--sort", "state"]).await.done();
    assert!(top.starts_with("nodes 1  queued 2  tenants 2  stuck 1  questions 1\n"), "{top}");
    assert!(top.find("beta/bad").unwrap() < top.find("acme/asks").unwrap(), "{top}");
    let top = &service.run(&["top", "--json"]).await.objects()[0];
    assert_eq!((&top["queued"], top["names"].as_array().unwrap().len()), (&json!(2), 3));
}

#[tokio::test]
async fn commands_do_it_and_say_so() {
    let service = Service::start().await;
    let backend = &service.backend;
    let node = joined(backend, "here").await;
    for sentence in [true, false] {
        let flag = if sentence { &[][..] } else { &["--json"][..] };
        let run = async |arguments: &[&str]| service.run(&[arguments, flag].concat()).await;
        let to = format!("acme/{sentence}");

        let question = asking(backend, &format!("{to}-asks"), node, "Which size?").await.to_string();
        let misfit = run(&["answer", &question, "--allow"]).await;
        assert_eq!(misfit.code, 1, "{misfit:?}");
        assert!(misfit.error.contains("the question is a `questions`"), "{misfit:?}");
        let answered = run(&["answer", &question, "--deny", "ask later", "--by", "anna"]).await.done();
        let late = run(&["answer", &question, "--dismiss"]).await;
        assert_eq!(late.code, 1, "{late:?}");
        assert!(late.error.contains("was decided before, by anna"), "{late:?}");

        let prompt = accepted(backend, &to).await.to_string();
        let quarantined = run(&["quarantine", &to, "it loops"]).await.done();
        let freed = run(&["unquarantine", &to]).await.done();
        let again = run(&["unquarantine", &to]).await;
        assert_eq!((again.code, again.out.as_str()), (1, ""), "{again:?}");
        let dropped = run(&["drop", &prompt, "sent by a loop"]).await.done();
        assert_eq!(run(&["drop", &prompt, "again"]).await.code, 1);

        let left = format!("{to}-left");
        accepted(backend, &left).await;
        let lost = joined(backend, "there").await;
        let owner = owned(backend, &left, lost).await;
        let recorded = backend.record_process(owner.clone(), Some(json!({ "group": 42 }))).await.unwrap();
        assert_eq!(recorded, Owned::Done(()));
        let term = owner.term.to_string();
        assert_eq!(run(&["remove-process", &left, &term]).await.code, 1, "its owner is alive");
        backend.leave(lost).await.unwrap();
        let processes = run(&["processes", &left]).await.done();
        let removed = run(&["remove-process", &left, &term]).await.done();
        assert_eq!(run(&["processes", &left]).await.done(), "");

        let account = run(&["account", "acme"]).await.done();
        let vacuum = run(&["vacuum", "0s"]).await.done();
        let asked = run(&["drain", &node.to_string()]).await.done();
        assert_eq!(run(&["drain", &prompt]).await.code, 1);
        if sentence {
            assert_eq!(answered, format!("the question {question} is answered\n"));
            assert_eq!(quarantined, "acme/true is quarantined\n");
            assert_eq!(freed, "acme/true may run again\n");
            assert_eq!(dropped, format!("the prompt {prompt} was taken out of its queue\n"));
            assert_eq!(cells(processes.trim_end())[..2], [term.as_str(), "there"]);
            assert_eq!(removed, format!("no process of {left} is recorded under the term {term}\n"));
            assert!(
                account.starts_with("acme: 3 sessions, 2 live; 1 prompts and 0 reminders wait; "),
                "{account}"
            );
            assert_eq!(vacuum, "1 prompts are forgotten\n");
            assert_eq!(asked, format!("{node} was asked to drain\n"));
        } else {
            let answers = [answered, quarantined, freed, dropped, processes, removed, account, vacuum, asked];
            let objects = answers.map(|line| serde_json::from_str::<Value>(&line).unwrap());
            assert_eq!(objects[1], json!({ "name": "acme/false", "quarantined": true }));
            assert_eq!(objects[4]["process"], json!({ "group": 42 }));
            assert_eq!(objects[8]["asked_to_drain"], true);
        }
    }
    let record = backend.nodes(None, 10).await.unwrap().into_iter().find(|found| found.id == node).unwrap();
    assert!(record.asked_to_drain && record.state == NodeState::Up);
}

#[tokio::test]
async fn quarantines_of_one_reason_are_lifted_together() {
    let service = Service::start().await;
    for session in ["acme/a", "acme/b", "beta/c", "beta/d"] {
        accepted(&service.backend, session).await;
        let why = if session == "acme/b" { "it loops" } else { "no such template" };
        service.run(&["quarantine", session, why]).await.done();
    }
    assert_eq!(service.run(&["stuck", "--json"]).await.objects()[0]["kind"], "operator");
    let none = service.run(&["unquarantine", "--all", "--kind", "losses", "--json"]).await.objects();
    assert_eq!(none, [json!({ "lifted": 0 })]);
    let some = service.run(&["unquarantine", "--all", "--because", "template"]).await.done();
    assert_eq!(some, "3 sessions may run again\n");
    assert!(service.run(&["stuck"]).await.done().starts_with("acme/b\t"));
}

#[tokio::test]
async fn a_tenant_moves_from_one_service_to_another() {
    let (here, there) = (Service::start().await, Service::start().await);
    for (session, flag) in [("acme/a", None), ("beta/b", Some("--json"))] {
        let prompt = accepted(&here.backend, session).await;
        let name: Name = name(session);
        let to = ["move", name.tenant().as_str(), "--to-socket", there.socket.to_str().unwrap()];
        let arguments: Vec<&str> = to.into_iter().chain(flag).collect();
        let busy = here.run(&arguments).await;
        assert_eq!(busy.code, 1, "{busy:?}");
        assert!(busy.error.contains("have it sleep"), "{busy:?}");
        here.run(&["drop", &prompt.to_string(), "moves"]).await.done();
        let moved = here.run(&arguments).await.done();
        match flag {
            None => assert_eq!(moved, "acme has moved: 1 sessions, 1 prompts\n"),
            Some(_) => assert_eq!(
                serde_json::from_str::<Value>(&moved).unwrap(),
                json!({ "tenant": "beta", "names": 1, "prompts": 1 })
            ),
        }
        assert_eq!(here.backend.name_record(name.clone()).await.unwrap(), None);
        assert!(there.backend.name_record(name).await.unwrap().is_some());
    }
}

#[tokio::test]
async fn escape_sequences_of_others_are_shown_as_text() {
    let service = Service::start().await;
    let evil = "acme/a\u{1b}[2J\u{9b}31m\tb\n\u{202e}";
    accepted(&service.backend, evil).await;
    quarantined(&service.backend, evil, "\u{1b}]0;title\u{7}").await;
    let plain = service.run(&["names"]).await.done();
    assert!(plain.starts_with(r"acme/a\u{1b}[2J\u{9b}31m\tb\n\u{202e}"), "{plain}");
    assert!(plain.contains(r"\u{1b}]0;title\u{7}"), "{plain}");
    let json = service.run(&["names", "--json"]).await.done();
    for out in [&plain, &json] {
        assert_eq!(out.matches(char::is_control).count(), if out == &plain { 9 } else { 1 }, "{out:?}");
    }
    assert_eq!(serde_json::from_str::<Value>(&json).unwrap()["name"], evil);
    let error = service.run(&["unquarantine", "acme/b\u{1b}[2J"]).await;
    assert!(error.code == 1 && error.error.contains(r"acme/b\u{1b}[2J"), "{error:?}");
}

#[tokio::test]
async fn a_long_list_is_read_in_pages_and_a_reader_may_leave() {
    let service = Service::start().await;
    for number in 0..3000 {
        accepted(&service.backend, &format!("acme/{number:05}-{}", "x".repeat(200))).await;
    }
    assert_eq!(service.run(&["names"]).await.done().lines().count(), 3000);
    service.backend.read.store(0, Ordering::SeqCst);
    let mut child = started(&["--socket", service.socket.to_str().unwrap(), "names"]);
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut first = String::new();
    in_time("the first line", out.read_line(&mut first)).await.unwrap();
    assert!(first.starts_with("acme/00000-"), "{first}");
    drop(out);
    let status = in_time("the end", child.wait()).await.unwrap();
    let mut error = String::new();
    child.stderr.take().unwrap().read_to_string(&mut error).await.unwrap();
    assert!(status.success() && error.is_empty(), "{status}: {error}");
    let read = service.backend.read.load(Ordering::SeqCst);
    assert!(read < 3000, "{read} rows were read for a reader that has left");
}

#[tokio::test]
async fn a_quota_is_shown_set_and_removed() {
    let service = Service::start().await;
    let unset = service.run(&["quota", "acme"]).await.done();
    assert_eq!(unset, "acme has the quota of its service\n");
    let set =
        service.run(&["quota", "acme", "--set", r#"{"live": 4, "weight": 2}"#, "--json"]).await.objects();
    assert_eq!((&set[0]["quota"]["live"], &set[0]["quota"]["weight"]), (&json!(4), &json!(2)));
    let kept = service.backend.quota("acme".try_into().unwrap()).await.unwrap().unwrap();
    assert_eq!((kept.live, kept.weight), (4, 2));
    let shown = service.run(&["quota", "acme"]).await.done();
    assert_eq!(serde_json::from_str::<Value>(&shown).unwrap(), set[0]["quota"]);
    let wrong = service.run(&["quota", "acme", "--set", r#"{"live": 0}"#]).await;
    assert_eq!(wrong.code, 1, "{wrong:?}");
    assert!(wrong.error.contains("at least 1"), "{wrong:?}");
    assert_eq!(service.run(&["quota", "acme", "--set", "{"]).await.code, 2);
    let removed = service.run(&["quota", "acme", "--remove", "--json"]).await.objects();
    assert_eq!(removed, [json!({ "tenant": "acme", "quota": null })]);
}

#[tokio::test]
async fn a_session_moves_to_another_host_and_the_old_host_is_forgotten() {
    let service = Service::start().await;
    let node = joined(&service.backend, "there").await;
    bound(&service.backend, "acme/a", "here").await;
    let moved = service.run(&["move-to-host", "acme/a", "nowhere"]).await;
    assert!(moved.code == 1 && moved.error.contains("no node of the host 'nowhere'"), "{moved:?}");
    let moved = service.run(&["move-to-host", "acme/a", "there"]).await.done();
    assert_eq!(moved, "acme/a is bound to the host there\n");
    assert_eq!(service.run(&["names", "--json"]).await.objects()[0]["host"], "there");
    let alive = service.run(&["forget-host", "there"]).await;
    assert!(alive.code == 1 && alive.error.contains(&node.to_string()), "{alive:?}");
    let forgotten = &service.run(&["forget-host", "here", "--json"]).await.objects()[0];
    assert_eq!((&forgotten["host"], &forgotten["bound"]), (&json!("here"), &json!([])));
}

#[tokio::test]
async fn completions_name_the_commands() {
    for shell in ["bash", "zsh", "fish"] {
        let script = run(&["completions", shell]).await.done();
        assert!(script.contains("remove-process"), "{shell}");
    }
}
