//! The prompt cache over sleep, crash, deploy, move and another version of the CLI.

use crate::real;
use greenroom::options::SystemPrompt;
use greenroom::{Session, SessionBuilder};
use greenroom_testkit::{Wake, WakeCheck, WakePlace, WakeReport};

/// The report for a profile. `GREENROOM_CLI_BEFORE` and `GREENROOM_CLI` are the CLIs before and after an upgrade.
async fn report(profile: impl Fn(&WakePlace) -> SessionBuilder) -> Option<WakeReport> {
    let cli = real::real_cli()?;
    let folder = tempfile::tempdir().unwrap();
    let before = std::env::var_os("GREENROOM_CLI_BEFORE").unwrap_or_else(|| cli.clone().into());
    let check = WakeCheck::new(before, folder.path()).upgrade(cli).allow_old_cli(real::allow_old_cli());
    Some(crate::wait::in_time("the check", check.run(profile)).await.unwrap())
}

/// A profile with a clock in its system prompt.
fn with_clock(place: &WakePlace) -> SessionBuilder {
    let prompt = format!("You help customers. It is now {} o'clock.", place.start);
    Session::builder().cwd(&place.work).system_prompt(SystemPrompt::Text(prompt))
}

#[tokio::test]
async fn a_woken_session_begins_its_request_with_the_last_one_before() {
    let profile = |place: &WakePlace| {
        let prompt = SystemPrompt::Text("You help customers.".to_owned());
        Session::builder().cwd(&place.work).system_prompt(prompt)
    };
    let Some(report) = report(profile).await else { return };
    assert!(report.is_kept(), "{report}");
    assert_eq!(report.cases.len(), 5);
}

#[tokio::test]
async fn the_cli_goes_on_with_the_first_system_prompt_of_a_conversation() {
    // CLIs before 2.1.265 do not keep it.
    if real::allow_old_cli() {
        return;
    }
    let Some(report) = report(with_clock).await else { return };
    assert!(report.is_kept(), "{report}");
}

#[tokio::test]
async fn a_clock_in_the_system_prompt_loses_the_cache_and_is_named() {
    let each_time = |place: &WakePlace| {
        with_clock(place).configure(|options| options.system_prompt_snapshot = Some(false))
    };
    let Some(report) = report(each_time).await else { return };
    for (wake, change) in &report.cases {
        let change = change.as_ref().unwrap_or_else(|| panic!("{wake:?} has not found the clock"));
        assert!(change.at.starts_with("system["), "{wake:?}: {change}");
        assert!(
            change.before.contains("now 1 o'clock") && change.after.contains("now 2 o'clock"),
            "{change}"
        );
    }
    assert!(report.change(Wake::Sleep).is_some());
}
