//! What the options do to the CLI: each reaches it, and is honoured.

use greenroom::SystemPrompt;
use greenroom::testkit::Script;

use crate::stage::{Stage, answers, start, stop, text};

#[tokio::test]
async fn a_system_prompt_is_what_the_model_reads() {
    let Some(stage) = Stage::new(Script::new().turn(text("Fine."))).await else { return };
    let session = start(stage.builder().system_prompt(SystemPrompt::Text("Speak in rhymes.".into()))).await;
    answers(&session, "How are you?", "Fine.").await;
    let request = stage.last_request();
    let system = &request.body()["system"];
    assert!(system.to_string().contains("Speak in rhymes."), "{system}");
    stop(&session).await;
}
