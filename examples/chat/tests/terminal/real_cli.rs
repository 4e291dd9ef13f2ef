//! The chat with the real CLI, on a scripted model. Needs `GREENROOM_CLI`; with `GREENROOM_REQUIRE_CLI` a missing CLI
//! is a failure.

use crate::person::{CTRL_D, ENTER, Person};

#[tokio::test]
async fn the_real_cli_answers_its_commands_and_names_its_models() {
    let Some(cli) = std::env::var("GREENROOM_CLI").ok().filter(|path| !path.is_empty()) else {
        assert!(std::env::var_os("GREENROOM_REQUIRE_CLI").is_none(), "GREENROOM_CLI names no CLI");
        return;
    };
    let mut person = Person::start(&["--cli", &cli], 100, 60, &[]);
    person.until("/help lists").await;
    person.types("/cost").await;
    person.types(ENTER).await;
    person.until("model > Estimated cost:").await;
    person.until("Total duration (API):").await;
    person.types("/model").await;
    person.types(ENTER).await;
    person.until("  default: ").await;
    person.types("/model haiku").await;
    person.types(ENTER).await;
    person.until("From now on: ").await;
    person.types("count").await;
    person.types(ENTER).await;
    person.until("model > I have counted to ten, and it was worth the wait.").await;
    person.until("so far)").await;
    person.types("bake").await;
    person.types(ENTER).await;
    person.until_rows("the question", |rows| rows.last().unwrap().starts_with("yes")).await;
    person.types("y").await;
    person.types(ENTER).await;
    person.until("model > That is all I can do in the kitchen.").await;
    person.types(CTRL_D).await;
    assert!(person.until_end().await.success());
}
