use proptest::prelude::*;
use proptest::sample::Index;
use serde_json::{Value, json};

use super::layers::{fast, slow};
use super::*;

const CALL: &str = concat!(
    r#"{"type":"control_request","request_id":"r1","request":{"subtype":"mcp_message","server_name":"calc","#,
    r#""message":{"method":"tools/call","params":{"name":"add","arguments":{"a":1},"_meta":"#,
    r#"{"claudecode/toolUseId":"toolu_1","progressToken":2}},"jsonrpc":"2.0","id":2}}}"#
);

/// The call with one part of its text replaced.
fn with(part: &str, other: &str) -> String {
    assert_eq!(CALL.matches(part).count(), 1, "{part}");
    CALL.replace(part, other)
}

#[test]
fn a_call_of_the_cli_is_read_without_a_copy() {
    let call = CallLine::parse(CALL.as_bytes()).unwrap();
    assert!(matches!(call.request_id, Cow::Borrowed("r1")));
    assert!(matches!(call.server, Cow::Borrowed("calc")));
    assert!(matches!(call.tool, Cow::Borrowed("add")));
    assert!(matches!(call.tool_use_id, Some(Cow::Borrowed("toolu_1"))));
    assert_eq!((call.rpc_id, call.arguments.unwrap().get()), ("2", r#"{"a":1}"#));
    assert_eq!(call.progress_token.unwrap(), "2");
    assert_eq!(fast(CALL.as_bytes()), slow(CALL.as_bytes()));
}

#[test]
fn unusual_calls_are_read_as_the_layers_read_them() {
    let calls = [
        with(r#""id":2"#, r#""id":"a\"é""#),
        with(r#""id":2"#, r#""id":-1.5e3"#),
        with(r#""id":2"#, r#""id":18446744073709551616"#),
        with(r#""a":1"#, r#""a":[{"b":[[],{}]},"\\u0041","x\n",null,true]"#),
        with(r#"{"a":1}"#, "null"),
        with(r#"{"a":1}"#, "[1, 2 ]"),
        with(r#"{"a":1}"#, r#""text""#),
        with(r#""arguments":{"a":1},"#, ""),
        with(r#"{"claudecode/toolUseId":"toolu_1","progressToken":2}"#, "null"),
        with(r#"{"claudecode/toolUseId":"toolu_1","progressToken":2}"#, "{}"),
        with(r#","_meta":{"claudecode/toolUseId":"toolu_1","progressToken":2}"#, ""),
        with(r#""toolu_1""#, "null"),
        with(r#""toolu_1","progressToken":2"#, r#""toolu\t1","progressToken":"p""#),
        with(r#""progressToken":2"#, r#""progressToken":null"#),
        with(r#""progressToken":2"#, r#""progressToken":{"odd":[]}"#),
        with(r#""progressToken":2"#, r#""progressToken":-2.5"#),
        with(r#""progressToken":2"#, r#""progressToken":true"#),
        with(r#""toolu_1""#, "7"),
        with(r#""toolu_1""#, r#"["toolu_1"]"#),
        with(r#"{"claudecode/toolUseId":"toolu_1","progressToken":2}"#, r#"[{"progressToken":2}]"#),
        with(r#"{"claudecode/toolUseId":"toolu_1","progressToken":2}"#, r#""toolu_1""#),
        with(r#""server_name":"calc","#, r#""server_name":"calc","serverName":7,"more":{"type":[1]},"#),
        with(r#""server_name":"calc","#, r#""server_name":"c\u0061lc\u2028","#),
        with(r#""jsonrpc":"2.0","#, r#""jsonrpc":2,"jsonrpc":"2.0","x":{"id":9},"#),
        with(r#""name":"add""#, "\"name\":\"\u{e9}\u{1f600}\""),
        with(r#""method":"#, r#""meth\u006fd":"#),
        with(r#""request_id":"r1","#, r#""response":null,"response":{},"request_id":"","#),
        with(r#""id":2"#, r#""id":2,"result":{}"#),
        with(r#""id":2"#, r#""id":2,"error":{}"#),
        with(r#"{"subtype""#, r#"{ "subtype""#),
        with(r#""a":1"#, r#""a":1"#) + " ",
    ];
    for call in calls {
        let read = fast(call.as_bytes());
        assert!(read.is_some(), "{call}");
        assert_eq!(read, slow(call.as_bytes()), "{call}");
    }
}

#[test]
fn lines_that_are_not_plainly_calls_are_left_to_the_layers() {
    let lines = [
        String::new(),
        "{}".into(),
        r#"{"type":"control_request""#.into(),
        r#"{"type":"control_request"}"#.into(),
        r#"{"type":"control_requests","request_id":"r1"}"#.into(),
        with("control_request", "control_response"),
        with("control_request", "assistant"),
        with("mcp_message", "sdk_mcp_request"),
        with("mcp_message", "can_use_tool"),
        with("server_name", "serverName"),
        with(r#""calc""#, "7"),
        with(r#""r1""#, "null"),
        with(r#""request_id":"r1","#, ""),
        with(r#""request_id":"r1","#, r#""request_id":"r0","request_id":"r1","#),
        with(r#""request_id":"r1","#, r#""type":"control_request","request_id":"r1","#),
        with(r#""subtype":"mcp_message","#, r#""subtype":"can_use_tool","subtype":"mcp_message","#),
        with(r#""subtype":"mcp_message","#, ""),
        with(r#""server_name":"calc","#, r#""server_name":"a","server_name":"calc","#),
        with("tools/call", "tools/list"),
        with(r#""method":"tools/call""#, r#""method":null"#),
        with(r#""method":"tools/call","#, ""),
        with(r#""method":"tools/call","#, r#""method":"tools/call","method":"tools/call","#),
        with(r#""id":2"#, r#""id":null"#),
        with(r#""id":2"#, r#""id":true"#),
        with(r#""id":2"#, r#""id":[2]"#),
        with(r#""id":2"#, r#""id":{"a":1}"#),
        with(r#""id":2"#, r#""id":2,"id":2"#),
        with(r#""id":2"#, r#""id":02"#),
        with(r#""id":2"#, r#""id":2,"result":1,"result":2"#),
        with(r#""id":2"#, r#""id":2,"error":{},"error":null"#),
        with(r#","id":2"#, ""),
        with(r#""name":"add""#, r#""name":7"#),
        with(r#""name":"add","#, ""),
        with(r#""name":"add","#, r#""name":"add","name":"add","#),
        with(r#""arguments":{"a":1}"#, r#""arguments":null,"arguments":{"a":1}"#),
        with(r#"{"a":1}"#, r#"{"a":"\ud83d"}"#),
        with(r#"{"a":1}"#, r#"{"a":"\ud83d\ude00"}"#),
        with(r#"{"a":1}"#, r#"{"a":"\\uD83D"}"#),
        with(r#"{"a":1}"#, r#"{"a":1"#),
        with(r#"{"a":1}"#, r#"{"a":01}"#),
        with(r#"{"a":1}"#, "{\"a\":\"\t\"}"),
        with(r#"{"a":1}"#, r#"{"a":nul}"#),
        with(r#""_meta":{"#, r#""_meta":null,"_meta":{"#),
        with(r#""toolu_1""#, "07"),
        with(r#""progressToken":2"#, r#""progressToken":null,"progressToken":2"#),
        with(r#"{"name":"add","arguments":{"a":1}"#, r#"["add",{"a":1}"#)
            .replace("}},\"jsonrpc", "}],\"jsonrpc"),
        CALL.to_owned() + "}",
        format!("{CALL}\u{0}"),
        format!(" {CALL}"),
    ];
    for line in lines {
        assert!(CallLine::parse(line.as_bytes()).is_none(), "{line}");
    }
    let mut torn = with(r#""add""#, r#""add~""#).into_bytes();
    let at = torn.iter().position(|byte| *byte == b'~').unwrap();
    torn[at] = 0xE2;
    assert!(CallLine::parse(&torn).is_none());
    for at in 0..CALL.len() {
        assert!(CallLine::parse(&CALL.as_bytes()[..at]).is_none(), "{}", &CALL[..at]);
    }
}

/// Strings with characters of every kind.
fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        3 => "[a-z_/]{1,12}",
        1 => "\\PC{0,12}",
        1 => "[\"\\\\\n\t\u{0}\u{1f}\u{2028}\u{2029}é😀/u]{0,6}",
        1 => "[ -~]{30,90}",
    ]
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        text().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 5, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::btree_map(text(), inner, 0..4)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

/// An object with these fields in any order, and others among them. Unless `plain`, some are missing or stand twice.
fn object(fields: Vec<(&'static str, BoxedStrategy<String>)>, plain: bool) -> BoxedStrategy<String> {
    let (names, values): (Vec<_>, Vec<_>) = fields.into_iter().unzip();
    let others = proptest::collection::vec((text(), value()), 0..3);
    let odd = proptest::collection::vec((any::<Index>(), 0..9u8), 0..2);
    (values, others, odd)
        .prop_flat_map(move |(values, others, odd)| {
            let mut written: Vec<(String, String)> =
                names.iter().map(|name| (*name).to_owned()).zip(values).collect();
            for (name, value) in others {
                let name = if names.contains(&name.as_str()) { "other".to_owned() } else { name };
                written.push((name, value.to_string()));
            }
            if !plain {
                for (which, how) in odd {
                    let at = which.index(written.len());
                    match how {
                        0 => written.push(written[at].clone()),
                        1 => drop(written.remove(at)),
                        2 => written[at].1 = "null".into(),
                        3 => written[at].1 = "{}".into(),
                        _ => {}
                    }
                }
            }
            Just(written).prop_shuffle()
        })
        .prop_map(|written| {
            let fields: Vec<String> =
                written.into_iter().map(|(name, value)| format!("{}:{value}", json!(name))).collect();
            format!("{{{}}}", fields.join(","))
        })
        .boxed()
}

fn quoted() -> BoxedStrategy<String> {
    text().prop_map(|text| json!(text).to_string()).boxed()
}

fn some_json() -> BoxedStrategy<String> {
    value().prop_map(|value| value.to_string()).boxed()
}

fn just(json: &str) -> BoxedStrategy<String> {
    Just(json.to_owned()).boxed()
}

/// A line with a call; if `plain`, one that the fast path reads.
fn line(plain: bool) -> impl Strategy<Value = String> {
    let id = prop_oneof![any::<i64>().prop_map(|id| id.to_string()), quoted()].boxed();
    let token = prop_oneof![some_json(), quoted()].boxed();
    let meta = object(vec![("claudecode/toolUseId", quoted()), ("progressToken", token)], plain);
    let meta = prop_oneof![5 => meta, 1 => just("null")].boxed();
    let params = object(vec![("name", quoted()), ("arguments", some_json()), ("_meta", meta)], plain);
    let method = just("\"tools/call\"");
    let message =
        object(vec![("method", method), ("id", id), ("params", params), ("jsonrpc", just("\"2.0\""))], plain);
    let subtype = just("\"mcp_message\"");
    let request = object(vec![("subtype", subtype), ("server_name", quoted()), ("message", message)], plain);
    object(vec![("request_id", quoted()), ("request", request)], plain)
        .prop_map(|fields| fields.replacen('{', r#"{"type":"control_request","#, 1))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn a_plain_call_is_read_as_the_layers_read_it(line in line(true)) {
        let read = fast(line.as_bytes());
        // A text may hold a backslash that looks like the escape of a surrogate.
        let long_way = slow(line.as_bytes()).filter(|_| !scan::surrogates(line.as_bytes()));
        prop_assert_eq!(&read, &long_way, "{}", line);
        prop_assert!(read.is_some() || scan::surrogates(line.as_bytes()), "{}", line);
    }

    #[test]
    fn an_odd_call_is_read_as_the_layers_read_it_or_left_to_them(line in line(false)) {
        if let Some(read) = fast(line.as_bytes()) {
            prop_assert_eq!(Some(read), slow(line.as_bytes()), "{}", line);
        }
    }

    #[test]
    fn a_damaged_call_is_read_as_the_layers_read_it_or_left_to_them(
        line in line(false),
        damages in proptest::collection::vec((any::<Index>(), 0..6u8, any::<u8>()), 1..4),
    ) {
        let mut line = line.into_bytes();
        for (at, how, byte) in damages {
            if line.is_empty() {
                break;
            }
            let at = at.index(line.len());
            match how {
                0 => line[at] = byte,
                1 => drop(line.remove(at)),
                2 => line.insert(at, b"\"\\{}[],: \n01"[usize::from(byte) % 12]),
                3 => line.splice(at..at, *b"\\ud83d").for_each(drop),
                4 => line.truncate(at.max(1)),
                _ => line[at] = b"\"\\{}[],:0n"[usize::from(byte) % 10],
            }
        }
        if let Some(read) = fast(&line) {
            prop_assert_eq!(Some(read), slow(&line), "{}", String::from_utf8_lossy(&line));
        }
    }
}
