//! Sessions inside an application's own supervision tree.
//!
//! ```text
//!   front desk            the application's supervisor
//!   ├── session "ada"     its CLI crashes on purpose: the session restarts it, and nobody else notices
//!   ├── session "bob"     fails for good: the front desk is told, and starts another session
//!   └── clock             a worker that is independent of both
//! ```
//!
//! Run it with `cargo run --example supervision_tree`. It needs nothing but Rust.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "an example shows what happens")]

use greenroom::{Event, Session};
use greenroom_testkit::{Fault, ModelTurn, Script, ScriptedCli};
use ractor::{Actor, ActorProcessingErr, ActorRef, RpcReplyPort, SupervisionEvent, call};
use tokio::sync::mpsc;

type Failure = Box<dyn std::error::Error>;

// ---- the application's own worker -----------------------------------------------------------------------------

struct Clock;

enum ClockMessage {
    Ticks(RpcReplyPort<u64>),
}

// With ractor's feature `cluster` there is no blanket implementation.
#[cfg(feature = "cluster")]
impl ractor::Message for ClockMessage {}

#[cfg_attr(feature = "async-trait", ractor::async_trait)]
impl Actor for Clock {
    type Msg = ClockMessage;
    type State = u64;
    type Arguments = ();

    async fn pre_start(&self, _: ActorRef<ClockMessage>, (): ()) -> Result<u64, ActorProcessingErr> {
        Ok(0)
    }

    async fn handle(
        &self,
        _: ActorRef<ClockMessage>,
        ClockMessage::Ticks(reply): ClockMessage,
        ticks: &mut u64,
    ) -> Result<(), ActorProcessingErr> {
        *ticks += 1;
        reply.send(*ticks)?;
        Ok(())
    }
}

// ---- the application's supervisor -----------------------------------------------------------------------------

struct FrontDesk {
    /// Receives the reports of the front desk.
    seen: mpsc::UnboundedSender<String>,
}

enum DeskMessage {
    /// Starts a session for a guest.
    Open(&'static str, RpcReplyPort<Session>),
    Clock(RpcReplyPort<ActorRef<ClockMessage>>),
}

#[cfg(feature = "cluster")]
impl ractor::Message for DeskMessage {}

struct Desk {
    clock: ActorRef<ClockMessage>,
    /// Stand-ins for the CLIs. An application with the real CLI keeps nothing here.
    clis: Vec<ScriptedCli>,
}

#[cfg_attr(feature = "async-trait", ractor::async_trait)]
impl Actor for FrontDesk {
    type Msg = DeskMessage;
    type State = Desk;
    type Arguments = ();

    async fn pre_start(&self, myself: ActorRef<DeskMessage>, (): ()) -> Result<Desk, ActorProcessingErr> {
        let (clock, _) = Actor::spawn_linked(None, Clock, (), myself.get_cell()).await?;
        Ok(Desk { clock, clis: Vec::new() })
    }

    async fn handle(
        &self,
        myself: ActorRef<DeskMessage>,
        message: DeskMessage,
        desk: &mut Desk,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            DeskMessage::Open(name, reply) => {
                let answers = Script::new().otherwise(ModelTurn::new().text(format!("Hello {name}.")));
                let cli = ScriptedCli::play(answers);
                // The session's actor becomes a child of this actor.
                let session =
                    Session::builder().transport(cli.transport()).spawn_linked(myself.get_cell()).await?;
                desk.clis.push(cli);
                reply.send(session)?;
            }
            DeskMessage::Clock(reply) => reply.send(desk.clock.clone())?,
        }
        Ok(())
    }

    // Without this method, ractor would stop the front desk as soon as any child ends.
    async fn handle_supervisor_evt(
        &self,
        _: ActorRef<DeskMessage>,
        event: SupervisionEvent,
        _: &mut Desk,
    ) -> Result<(), ActorProcessingErr> {
        match event {
            SupervisionEvent::ActorStarted(_) => {}
            SupervisionEvent::ActorTerminated(..) => self.seen.send("a child has stopped".into())?,
            SupervisionEvent::ActorFailed(_, error) => {
                let cause = match error.downcast_ref::<greenroom::Error>() {
                    Some(error) => format!("{:?}: {error}", error.kind()),
                    None => error.to_string(),
                };
                self.seen.send(format!("a child has failed ({cause})"))?;
            }
            _ => {}
        }
        Ok(())
    }
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    std::panic::set_hook(Box::new(|_| {}));
    let (seen, mut desk_saw) = mpsc::unbounded_channel();
    let (desk, running) = Actor::spawn(None, FrontDesk { seen }, ()).await?;
    let ada = call!(desk, |reply| DeskMessage::Open("ada", reply))?;
    let bob = call!(desk, |reply| DeskMessage::Open("bob", reply))?;
    let clock = call!(desk, DeskMessage::Clock)?;
    println!("ada    > {}", ask(&ada).await?);
    println!("bob    > {}", ask(&bob).await?);
    println!("clock  > {} tick", call!(clock, ClockMessage::Ticks)?);

    // Ada's CLI dies. Her session restarts the CLI and resumes the conversation without help.
    let mut events = ada.events();
    ada.inject(Fault::KillPort);
    while let Some(event) = events.next().await {
        match event {
            Event::CliExited { cause, .. } => println!("\nada    : her CLI died: {cause}"),
            Event::CliRestarting { delay, .. } => {
                println!("ada    : it will be restarted in {} ms", delay.as_millis())
            }
            Event::CliRestarted { epoch, .. } => {
                println!("ada    : it is back, as incarnation {epoch}, in the same conversation");
                break;
            }
            _ => {}
        }
    }
    println!("ada    > {}", ask(&ada).await?);
    println!("desk   : has noticed nothing: {}", desk_saw.try_recv().is_err());

    // Bob's session loses its conversation, the actor that cannot be restarted. The session fails, and its supervisor
    // is told.
    bob.inject(Fault::PanicConversation);
    bob.wait().await;
    println!("\nbob    : {}", bob.failure().map_or_else(String::new, |error| error.to_string()));
    println!("desk   : {}", desk_saw.recv().await.unwrap_or_default());
    let bob = call!(desk, |reply| DeskMessage::Open("bob", reply))?;
    println!("bob    > {} (a new session)", ask(&bob).await?);
    println!("ada    > {} (never noticed)", ask(&ada).await?);
    println!("clock  > {} ticks (never noticed)", call!(clock, ClockMessage::Ticks)?);

    // Sessions stop in order, and then the desk.
    ada.stop().await?;
    bob.stop().await?;
    desk.stop(None);
    running.await?;
    Ok(())
}

async fn ask(session: &Session) -> Result<String, Failure> {
    let mut turn = session.prompt("Hello?").await?;
    Ok(turn.outcome().await?.text().unwrap_or_default().to_owned())
}
