//! A person at a page in Chromium: the keys that they press, what they click, and what they see and hear.
//!
//! Chromium runs headless, and takes commands of its DevTools protocol from a pipe. When the pipe closes, Chromium ends, also if
//! the test was killed. Nothing but loopback is reachable from the page.
//!
//! `GREENROOM_CHROMIUM` names the program; without it Debian's `chromium` is looked for. Without a program the tests say in one line
//! that they were not run; with `GREENROOM_REQUIRE_CHROMIUM` set they fail.

#![allow(clippy::disallowed_methods, reason = "Chromium is no CLI")]
#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::fmt::Display;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Once;
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::wait::in_time;

/// The path of the program.
pub(crate) const PROGRAM: &str = "GREENROOM_CHROMIUM";
/// Set: a test fails if there is no program.
pub(crate) const REQUIRED: &str = "GREENROOM_REQUIRE_CHROMIUM";

/// Pause between two looks at the page.
const LOOK: Duration = Duration::from_millis(20);

/// Chromium reads commands from descriptor 3, and writes answers to descriptor 4.
const PIPES: &str = r#"exec "$0" "$@" 3<&0 4>&1 </dev/null >/dev/null 2>&1"#;

const ARGUMENTS: [&str; 10] = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
    "--lang=en",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
    "--remote-debugging-pipe",
];

/// Chromium's program; `None`: there is none, which the first test says in one line.
///
/// # Panics
/// If there is none and `GREENROOM_REQUIRE_CHROMIUM` is set.
fn program() -> Option<PathBuf> {
    let named = std::env::var_os(PROGRAM).map(|program| vec![PathBuf::from(program)]);
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let names = ["chromium", "google-chrome"];
    let usual =
        || names.iter().flat_map(|name| std::env::split_paths(&paths).map(move |path| path.join(name)));
    let found = named.unwrap_or_else(|| usual().collect()).into_iter().find(|program| program.is_file());
    if found.is_none() {
        assert!(std::env::var_os(REQUIRED).is_none(), "Chromium is not installed, and {REQUIRED} is set");
        static SAID: Once = Once::new();
        SAID.call_once(|| {
            let binary = env!("CARGO_CRATE_NAME");
            let note = format!(
                "{binary}: the tests in Chromium are not run and count as passed, because Chromium is not installed. To run them: \
                 install chromium, or set {PROGRAM} to its path\n"
            );
            // Not with `eprintln!`, which is not shown for a test that passes.
            std::io::stderr().write_all(note.as_bytes()).unwrap();
        });
    }
    found
}

/// A browser with one page.
pub(crate) struct Browser {
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    chromium: Child,
    profile: TempDir,
    /// The page's session of the protocol.
    session: Option<String>,
    commands: u64,
    /// Errors of the page's scripts, and whatever the page's policy refused.
    pub(crate) errors: Vec<String>,
}

/// An error of a command, as the protocol says it.
type Refused = String;

impl Browser {
    /// `None`: there is no Chromium, and there need not be one.
    pub(crate) async fn start() -> Option<Self> {
        let program = program()?;
        let profile = tempfile::tempdir().unwrap();
        let mut chromium = Command::new("/bin/sh")
            .args(["-c", PIPES])
            .arg(program)
            .args(ARGUMENTS)
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .arg("about:blank")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let (to, from) = (chromium.stdin.take().unwrap(), BufReader::new(chromium.stdout.take().unwrap()));
        let mut browser =
            Self { to, from, chromium, profile, session: None, commands: 0, errors: Vec::new() };
        let pages = browser.command("Target.getTargets", json!({})).await;
        let pages = pages["targetInfos"].as_array().unwrap();
        let page = &pages.iter().find(|target| target["type"] == "page").unwrap()["targetId"];
        let attached =
            browser.command("Target.attachToTarget", json!({ "targetId": page, "flatten": true })).await;
        browser.session = Some(attached["sessionId"].as_str().unwrap().to_owned());
        for domain in ["Page", "Runtime", "Log", "DOM", "Accessibility"] {
            browser.command(&format!("{domain}.enable"), json!({})).await;
        }
        Some(browser)
    }

    /// Ends Chromium, and removes its profile.
    pub(crate) async fn close(mut self) {
        self.session = None;
        self.command("Browser.close", json!({})).await;
        in_time("the end of Chromium", self.chromium.wait()).await.unwrap();
        self.profile.close().unwrap();
    }

    async fn command(&mut self, method: &str, parameters: Value) -> Value {
        self.try_command(method, parameters).await.unwrap_or_else(|error| panic!("{method}: {error}"))
    }

    async fn try_command(&mut self, method: &str, parameters: Value) -> Result<Value, Refused> {
        self.commands += 1;
        let mut command = json!({ "id": self.commands, "method": method, "params": parameters });
        if let Some(session) = &self.session {
            command["sessionId"] = json!(session);
        }
        let mut line = serde_json::to_vec(&command).unwrap();
        line.push(0);
        self.to.write_all(&line).await.unwrap();
        in_time(method, async {
            loop {
                let mut message = self.message().await;
                if message["id"] == self.commands {
                    return match message.get("error") {
                        Some(error) => Err(error.to_string()),
                        None => Ok(message["result"].take()),
                    };
                }
                self.event(&message);
            }
        })
        .await
    }

    async fn message(&mut self) -> Value {
        let mut line = Vec::new();
        self.from.read_until(0, &mut line).await.unwrap();
        assert_eq!(line.pop(), Some(0), "Chromium has ended");
        serde_json::from_slice(&line).unwrap()
    }

    fn event(&mut self, event: &Value) {
        let parameters = &event["params"];
        match event["method"].as_str() {
            Some("Runtime.exceptionThrown") => self.errors.push(parameters["exceptionDetails"].to_string()),
            Some("Log.entryAdded") if parameters["entry"]["level"] == "error" => {
                self.errors.push(parameters["entry"].to_string());
            }
            _ => {}
        }
    }

    /// Waits until Chromium logs an error with this text, and takes it from `errors`.
    pub(crate) async fn logs(&mut self, text: &str) {
        in_time(format!("the error {text:?}"), async {
            loop {
                if let Some(logged) = self.errors.iter().position(|error| error.contains(text)) {
                    self.errors.remove(logged);
                    return;
                }
                let message = self.message().await;
                self.event(&message);
            }
        })
        .await;
    }

    /// Loads a page, and returns when its scripts have run.
    pub(crate) async fn open(&mut self, url: &str) {
        self.command("Page.navigate", json!({ "url": url })).await;
        self.loaded().await;
    }

    /// Loads the page again.
    pub(crate) async fn reload(&mut self) {
        // The mark is gone when the next page is there.
        self.run("window.before = true").await;
        self.command("Page.reload", json!({})).await;
        self.until("the next page", "!window.before").await;
        self.loaded().await;
    }

    async fn loaded(&mut self) {
        self.until("the page", "location.href !== 'about:blank' && document.readyState === 'complete'").await;
    }

    /// Sets the size of the page, in pixels of CSS, and the colours that the person prefers.
    pub(crate) async fn look(&mut self, width: u32, height: u32, dark: bool) {
        let metrics =
            json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600 });
        self.command("Emulation.setDeviceMetricsOverride", metrics).await;
        let scheme = if dark { "dark" } else { "light" };
        let features = json!([
            { "name": "prefers-color-scheme", "value": scheme },
            { "name": "prefers-reduced-motion", "value": "reduce" },
        ]);
        self.command("Emulation.setEmulatedMedia", json!({ "features": features })).await;
    }

    /// Runs a script, and returns the value of its last expression.
    pub(crate) async fn run(&mut self, script: &str) -> Value {
        self.try_run(script).await.unwrap_or_else(|error| panic!("{script}: {error}"))
    }

    async fn try_run(&mut self, script: &str) -> Result<Value, Refused> {
        let parameters = json!({ "expression": script, "returnByValue": true, "awaitPromise": true });
        let mut ran = self.try_command("Runtime.evaluate", parameters).await?;
        match ran.get("exceptionDetails") {
            Some(thrown) => Err(thrown.to_string()),
            None => Ok(ran["result"]["value"].take()),
        }
    }

    /// Looks until the script's value counts as true, and returns the value.
    pub(crate) async fn until(&mut self, what: impl Display, script: &str) -> Value {
        let looking = async {
            loop {
                // An error: another page is being loaded.
                let value = self.try_run(script).await.unwrap_or_default();
                if !matches!(value, Value::Null | Value::Bool(false)) && value != "" && value != 0 {
                    return value;
                }
                tokio::time::sleep(LOOK).await;
            }
        };
        in_time(what, looking).await
    }

    /// Looks until the page shows the text.
    pub(crate) async fn sees(&mut self, text: &str) {
        self.until(
            format!("the text {text:?}"),
            &format!("document.body.innerText.includes({})", json!(text)),
        )
        .await;
    }

    /// The text that a person reads in the elements, one for each.
    pub(crate) async fn texts(&mut self, selector: &str) -> Vec<String> {
        let script =
            format!("[...document.querySelectorAll({})].map((one) => one.innerText)", json!(selector));
        serde_json::from_value(self.run(&script).await).unwrap()
    }

    /// The elements with this role and this name, as a screen reader finds them.
    pub(crate) async fn found(&mut self, role: &str, name: &str) -> Vec<Value> {
        // An error: another page is being loaded.
        let Ok(page) = self.try_command("Runtime.evaluate", json!({ "expression": "document" })).await else {
            return Vec::new();
        };
        let query = json!({ "objectId": page["result"]["objectId"], "role": role, "accessibleName": name });
        let found = self.try_command("Accessibility.queryAXTree", query).await;
        let nodes = found.ok().and_then(|mut found| found["nodes"].take().as_array().cloned());
        let mut nodes = nodes.unwrap_or_default();
        nodes.retain(|node| node["ignored"] == false);
        nodes
    }

    /// Clicks the first such element, as soon as it is there.
    pub(crate) async fn click(&mut self, role: &str, name: &str) {
        let clicking = async {
            loop {
                if let Some(node) = self.found(role, name).await.first()
                    && let Some((x, y)) = self.place(&node["backendDOMNodeId"]).await
                {
                    return (x, y);
                }
                tokio::time::sleep(LOOK).await;
            }
        };
        let (x, y) = in_time(format!("the {role} {name:?}"), clicking).await;
        for kind in ["mousePressed", "mouseReleased"] {
            let event = json!({ "type": kind, "x": x, "y": y, "button": "left", "clickCount": 1 });
            self.command("Input.dispatchMouseEvent", event).await;
        }
    }

    /// The middle of an element, which is scrolled into view. `None`: it is not shown.
    async fn place(&mut self, node: &Value) -> Option<(f64, f64)> {
        let node = json!({ "backendNodeId": node });
        self.try_command("DOM.scrollIntoViewIfNeeded", node.clone()).await.ok()?;
        let quads = self.try_command("DOM.getContentQuads", node).await.ok()?;
        let corners: Vec<f64> = serde_json::from_value(quads["quads"].get(0)?.clone()).ok()?;
        let middle = |first: usize| corners.iter().skip(first).step_by(2).sum::<f64>() / 4.0;
        Some((middle(0), middle(1)))
    }

    /// Presses a key, such as `Tab` or `Enter`.
    pub(crate) async fn press(&mut self, key: &str) {
        let (code, text) = match key {
            "Tab" => (9, ""),
            "Enter" => (13, "\r"),
            "Escape" => (27, ""),
            "Space" => (32, " "),
            _ => panic!("the key {key} is not on this keyboard"),
        };
        let name = if key == "Space" { " " } else { key };
        for kind in ["keyDown", "keyUp"] {
            let text = if kind == "keyDown" { text } else { "" };
            let event = json!({
                "type": kind, "key": name, "code": key, "windowsVirtualKeyCode": code, "text": text,
            });
            self.command("Input.dispatchKeyEvent", event).await;
        }
    }

    /// Types a text into the element that has the focus.
    pub(crate) async fn type_text(&mut self, text: &str) {
        self.command("Input.insertText", json!({ "text": text })).await;
    }

    /// Presses Tab until the element with this role and name has the focus.
    ///
    /// # Panics
    /// If it cannot be reached.
    pub(crate) async fn tab_to(&mut self, role: &str, name: &str) {
        let mut passed = Vec::new();
        for _ in 0..100 {
            let nodes = self.found(role, name).await;
            let focused = |node: &Value| {
                let properties = node["properties"].as_array();
                properties.is_some_and(|all| {
                    all.iter().any(|one| one["name"] == "focused" && one["value"]["value"] == true)
                })
            };
            if nodes.iter().any(focused) {
                return;
            }
            self.press("Tab").await;
            passed.push(self.run("document.activeElement.outerHTML.slice(0, 80)").await);
        }
        panic!("no Tab reaches the {role} {name:?}: {passed:#?}");
    }

    /// Fails if the page is wider than what is shown of it. Elements in one with `data-scrolls` may.
    pub(crate) async fn fits(&mut self) {
        let wider = "[...document.querySelectorAll('body *')]
            .filter((one) => one.getBoundingClientRect().right > innerWidth + 1 && !one.closest('[data-scrolls]'))
            .map((one) => one.outerHTML.slice(0, 100))";
        assert_eq!(self.run(wider).await, json!([]), "these elements reach over the edge");
        assert_eq!(self.run("document.documentElement.scrollWidth > innerWidth").await, json!(false));
    }

    /// Keeps a picture of the page, as `browser/NAME.png` in the folder for temporary files of `target`.
    pub(crate) async fn picture(&mut self, name: &str) {
        let picture = self.command("Page.captureScreenshot", json!({ "format": "png" })).await;
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("browser");
        std::fs::create_dir_all(&folder).unwrap();
        let bytes = BASE64_STANDARD.decode(picture["data"].as_str().unwrap()).unwrap();
        std::fs::write(folder.join(format!("{name}.png")), bytes).unwrap();
    }
}
