//! The JSON of inquiries and of their answers, literally: services store it and show it on pages.

use greenroom::callback::{Inquiry, InquiryAnswer};
use greenroom::permission::{Answers, Unanswered};
use greenroom::{PermissionDecision, hook};
use serde_json::{Value, json};

/// The inquiry of this text, which must be written as it was read.
fn inquiry(text: &str) -> Inquiry {
    let inquiry: Inquiry = serde_json::from_str(text).unwrap();
    assert_eq!(serde_json::to_string(&inquiry).unwrap(), text);
    let value: Value = serde_json::from_str(text).unwrap();
    assert_eq!(serde_json::from_value::<Inquiry>(value).unwrap(), inquiry);
    inquiry
}

// Guards: a handler leaves a request open, or there is none
#[test]
fn an_inquiry_is_stored_and_shown_as_this_json() {
    let permission = inquiry(concat!(
        r#"{"kind":"permission","request":{"tool_name":"Bash","input":{"command":"ls -l"},"tool_use_id":"toolu_1","#,
        r#""permission_suggestions":[{"type":"addRules","rules":[{"toolName":"Bash","ruleContent":"ls:*"}],"#,
        r#""behavior":"allow","destination":"session"}],"decision_reason":"no rule","suppress_always_allow_rule":true,"#,
        r#""title":"List files?","a_field_of_tomorrow":1}}"#,
    ));
    let Inquiry::Permission { request } = &permission else { panic!("{permission:?}") };
    assert_eq!((permission.kind(), &request.input["command"]), ("permission", &json!("ls -l")));
    assert_eq!(request.permission_suggestions.len(), 1);

    let questions = inquiry(concat!(
        r#"{"kind":"questions","questions":[{"question":"Which port?","header":"Port","#,
        r#""options":[{"label":"80","description":"The usual one"}],"multiSelect":false}]}"#,
    ));
    assert!(matches!(&questions, Inquiry::Questions { questions } if questions[0].options[0].label == "80"));
    let elicitation = inquiry(concat!(
        r#"{"kind":"elicitation","request":{"mcp_server_name":"crm","message":"Who are you?","mode":"form","#,
        r#""requested_schema":{"type":"object"}}}"#,
    ));
    assert!(matches!(elicitation, Inquiry::Elicitation { request } if request.mcp_server_name == "crm"));
    let dialog = inquiry(r#"{"kind":"dialog","request":{"dialog_kind":"retry","payload":{"times":3}}}"#);
    assert!(matches!(dialog, Inquiry::Dialog { request } if request.payload["times"] == 3));
}

#[test]
fn an_inquiry_is_read_in_any_order_and_inside_tagged_types() {
    #[derive(Debug, serde::Deserialize)]
    #[serde(tag = "state", rename_all = "snake_case")]
    enum Stored {
        Open { inquiry: Inquiry },
    }
    let text =
        r#"{"inquiry":{"request":{"input":{"a":1},"tool_name":"Bash"},"kind":"permission"},"state":"open"}"#;
    let Stored::Open { inquiry } = serde_json::from_str(text).unwrap();
    assert!(matches!(inquiry, Inquiry::Permission { request } if request.input == json!({ "a": 1 })));
    for (text, trouble) in [
        (r#"{"kind":"wish"}"#, "unknown variant `wish`"),
        (r#"{"request":{}}"#, "missing field `kind`"),
        (r#"{"kind":"permission","request":{}}"#, "missing field `tool_name`"),
    ] {
        let error = serde_json::from_str::<Inquiry>(text).unwrap_err().to_string();
        assert!(error.contains(trouble), "{error}");
    }
}

// Guards: a handler leaves a request open, or there is none
#[test]
fn an_answer_to_an_inquiry_is_this_json() {
    let Inquiry::Permission { request } = inquiry(concat!(
        r#"{"kind":"permission","request":{"tool_name":"Bash","input":{},"#,
        r#""permission_suggestions":[{"type":"setMode","mode":"plan","destination":"session"}]}}"#,
    )) else {
        panic!("it is about a permission")
    };
    let answers = Answers::new().answer("Which port?", "80").notes("Which port?", "the proxy has 8080");
    let answers = answers.unanswered("Which host?", Unanswered::Skipped);
    for (answer, text) in [
        (InquiryAnswer::allow(), r#"{"kind":"allowed"}"#),
        (
            InquiryAnswer::allow_with(json!({ "command": "ls" })),
            r#"{"kind":"allowed","input":{"command":"ls"}}"#,
        ),
        (
            InquiryAnswer::allow_always(&request),
            r#"{"kind":"allowed","updates":[{"type":"setMode","mode":"plan","destination":"session"}]}"#,
        ),
        (InquiryAnswer::deny("not today"), r#"{"kind":"denied","message":"not today"}"#),
        (
            InquiryAnswer::deny_and_interrupt("enough"),
            r#"{"kind":"denied","message":"enough","interrupt":true}"#,
        ),
        (
            InquiryAnswer::Answered(Answers::new().choose("Which hosts?", ["a", "b"])),
            r#"{"kind":"answered","answers":{"Which hosts?":"a, b"}}"#,
        ),
        (
            InquiryAnswer::Answered(answers),
            concat!(
                r#"{"kind":"answered","answers":{"Which port?":"80"},"annotations":{"#,
                r#""Which host?":{"unanswered":"skipped"},"Which port?":{"notes":"the proxy has 8080"}}}"#,
            ),
        ),
        (
            InquiryAnswer::Accepted { content: json!({ "name": "Ada" }) },
            r#"{"kind":"accepted","content":{"name":"Ada"}}"#,
        ),
        (InquiryAnswer::Completed { result: json!("retry") }, r#"{"kind":"completed","result":"retry"}"#),
        (InquiryAnswer::Dismissed, r#"{"kind":"dismissed"}"#),
    ] {
        assert_eq!(serde_json::to_string(&answer).unwrap(), text);
        assert_eq!(serde_json::from_str::<InquiryAnswer>(text).unwrap(), answer);
    }
}

#[test]
fn an_answer_with_a_misspelt_field_allows_nothing() {
    for text in [
        r#"{"kind":"allowed","imput":{"command":"ls"}}"#,
        r#"{"kind":"allow"}"#,
        r#"{"kind":"denied"}"#,
        r#"{"kind":"answered","answers":{},"anotations":{}}"#,
        r#"{}"#,
    ] {
        assert!(serde_json::from_str::<InquiryAnswer>(text).is_err(), "{text}");
    }
}

#[test]
fn a_hook_that_leaves_a_call_undecided_lets_the_cli_ask() {
    let undecided = hook::PermissionRequestOutput::decide(PermissionDecision::undecided());
    assert_eq!(undecided, hook::PermissionRequestOutput::pass());
}
