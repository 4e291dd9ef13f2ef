//! Structured output: the model answers with a type of yours.
//!
//! ```text
//! cargo run --example structured_output                  # needs nothing but Rust
//! cargo run --example structured_output -- --cli claude  # on the real CLI, with a scripted model
//! ```

#![allow(clippy::print_stdout, reason = "an example shows what happens")]

mod common;

use common::Failure;
use greenroom::Session;
use greenroom_testkit::{ModelTurn, Script};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

/// The type becomes a JSON Schema, and the CLI checks the model's answer against the schema.
#[derive(Debug, Deserialize, JsonSchema)]
struct Recipe {
    /// The dish
    name: String,
    /// Time to cook, in minutes
    minutes: u32,
    ingredients: Vec<Ingredient>,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct Ingredient {
    name: String,
    grams: f64,
}

fn script() -> Script {
    let recipe = json!({ "name": "Shortbread", "minutes": 45, "ingredients": [
        { "name": "butter", "grams": 200 }, { "name": "sugar", "grams": 100 }, { "name": "flour", "grams": 300 },
    ] });
    // The model gives a structured answer by calling a tool that the CLI adds for this purpose.
    Script::new()
        .turn(ModelTurn::new().call("StructuredOutput", recipe))
        .turn(ModelTurn::new().text("There you are."))
        .otherwise(ModelTurn::new().text("I would rather talk about it."))
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let stage = common::start(Session::builder().output_format::<Recipe>(), script()).await?;

    let recipe: Recipe = stage.session.prompt("How do I make shortbread?").await?.structured().await?;
    println!("{}, {} minutes", recipe.name, recipe.minutes);
    for Ingredient { name, grams } in &recipe.ingredients {
        println!("{grams:>6} g {name}");
    }

    // A model may fail to give a structured answer. Then `structured` returns an error, and the outcome stays as it is.
    if !stage.live {
        let mut turn = stage.session.prompt("And without butter?").await?;
        match turn.structured::<Recipe>().await {
            Ok(recipe) => println!("{recipe:?}"),
            Err(error) => println!("no recipe: {error}"),
        }
        println!("it said: {:?}", turn.outcome().await?.text());
    }
    stage.session.stop().await?;
    Ok(())
}
