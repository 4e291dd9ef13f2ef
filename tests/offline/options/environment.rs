//! The environment that the CLI gets and inherits.

use greenroom::Options;
use greenroom::options::EnvPolicy;
use greenroom_testkit::Delivered;

fn of(change: impl FnOnce(&mut Options)) -> Delivered {
    let mut options = Options::default();
    change(&mut options);
    Delivered::of(options).unwrap()
}

#[test]
fn variables_of_another_cli_are_not_inherited() {
    let launch = of(|_| {});
    assert!(launch.inherit_env);
    assert_eq!(launch.unset_env, ["CLAUDECODE", "NODE_OPTIONS", "BUN_OPTIONS"]);

    let kept = of(|o| o.env = [("NODE_OPTIONS".to_owned(), "--x".to_owned())].into());
    assert_eq!(kept.unset_env, ["CLAUDECODE", "BUN_OPTIONS"]);

    let clean = of(|o| o.env_policy = EnvPolicy::Clean);
    assert!(!clean.inherit_env && clean.unset_env.is_empty());
}

#[test]
fn a_service_passes_on_only_the_listed_variables() {
    // `cargo test` sets CARGO_MANIFEST_DIR, and every system sets PATH.
    let path = std::env::var("PATH").unwrap();
    let launch = of(|o| o.env_policy = EnvPolicy::Service);
    assert!(!launch.inherit_env && launch.unset_env.is_empty());
    assert_eq!(launch.env.get("PATH"), Some(&path));
    assert!(std::env::var("CARGO_MANIFEST_DIR").is_ok() && !launch.env.contains_key("CARGO_MANIFEST_DIR"));
    assert_eq!(launch.env["CLAUDE_CODE_ENTRYPOINT"], "sdk-cli");

    let own = of(|o| {
        o.env_policy = EnvPolicy::Only(vec!["PATH".into(), "CARGO_*".into()]);
        o.env = [("PATH".to_owned(), "/own".to_owned())].into();
    });
    assert_eq!(own.env["PATH"], "/own", "the options override");
    assert!(own.env.contains_key("CARGO_MANIFEST_DIR"));
}

#[test]
fn the_working_directory_goes_into_the_environment() {
    let absolute = of(|o| o.cwd = Some("/srv".into()));
    assert_eq!(absolute.env.get("PWD").map(String::as_str), Some("/srv"));
    assert!(!absolute.unset_env.contains(&"PWD".to_owned()));

    let relative = of(|o| o.cwd = Some("srv".into()));
    assert!(!relative.env.contains_key("PWD"));
    assert!(relative.unset_env.contains(&"PWD".to_owned()));
}
