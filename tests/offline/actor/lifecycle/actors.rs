//! A session as an actor: linked to a supervisor, and driven by messages.

use super::*;

/// An application's own actor.
struct Desk;

/// Supervision events of its child.
#[derive(Debug, PartialEq)]
enum Told {
    Stopped,
    Failed(Option<ErrorKind>),
}

#[cfg_attr(feature = "async-trait", ractor::async_trait)]
impl Actor for Desk {
    type Msg = ();
    type State = mpsc::UnboundedSender<Told>;
    type Arguments = mpsc::UnboundedSender<Told>;

    async fn pre_start(
        &self,
        _: ActorRef<()>,
        told: mpsc::UnboundedSender<Told>,
    ) -> Result<mpsc::UnboundedSender<Told>, ActorProcessingErr> {
        Ok(told)
    }

    async fn handle_supervisor_evt(
        &self,
        _: ActorRef<()>,
        event: SupervisionEvent,
        told: &mut mpsc::UnboundedSender<Told>,
    ) -> Result<(), ActorProcessingErr> {
        match event {
            SupervisionEvent::ActorTerminated(..) => told.send(Told::Stopped)?,
            SupervisionEvent::ActorFailed(_, error) => {
                told.send(Told::Failed(error.downcast_ref::<Error>().map(Error::kind)))?;
            }
            _ => {}
        }
        Ok(())
    }
}

/// A session linked under a desk, and what the desk is told.
async fn linked(
    builder: SessionBuilder,
) -> (Session, CliEnd, ScriptedListener, ActorRef<()>, mpsc::UnboundedReceiver<Told>) {
    let (told, hear) = mpsc::unbounded_channel();
    let (desk, _) = Actor::spawn(None, Desk, told).await.unwrap();
    let (transport, mut listener) = ScriptedCli::by_hand();
    let starting = builder.transport(transport).spawn_linked(desk.get_cell());
    let (session, end) = within(SOON, async { tokio::join!(starting, next(&mut listener)) }).await;
    (session.unwrap(), end, listener, desk, hear)
}

#[tokio::test(start_paused = true)]
async fn a_parent_sees_its_session_stop() {
    let (session, end, _listener, desk, mut hear) = linked(builder()).await;
    stop(session, end).await;
    assert_eq!(within(SOON, hear.recv()).await, Some(Told::Stopped));
    desk.stop(None);
}

#[tokio::test(start_paused = true)]
async fn a_parent_sees_its_session_fail_with_the_error() {
    let (session, end, _listener, desk, mut hear) = linked(restarts(0)).await;
    end.exit(killed());
    assert_eq!(within(SOON, hear.recv()).await, Some(Told::Failed(Some(ErrorKind::SessionFailed))));
    assert_eq!(session.failure().unwrap().kind(), ErrorKind::SessionFailed);
    desk.stop(None);
}

#[tokio::test(start_paused = true)]
async fn a_session_dies_with_its_parent() {
    let (session, mut end, _listener, desk, _hear) = linked(builder()).await;
    let mut events = session.events();
    let mut turn = prompt(&session, "long").await;
    prompted(&mut end, "long").await;
    desk.stop(None);
    within(SOON, end.process().killed()).await;
    within(SOON, session.wait()).await;
    rest(&mut events).await;
    let torn = within(SOON, turn.outcome()).await.unwrap_err();
    assert_eq!(torn.kind(), ErrorKind::SessionFailed);
    assert!(session.prompt("anybody?").await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_session_is_an_actor_with_messages() {
    let (session, mut end, _listener, desk, mut hear) = linked(builder()).await;
    let actor = session.actor().clone();
    let mut events = call_t!(actor, SessionMessage::Events, 1000).unwrap();
    let mut turn = call_t!(actor, SessionMessage::Prompt, 1000, "hello".into()).unwrap().unwrap();
    let given = prompted(&mut end, "hello").await;
    end.begin_turn();
    let snapshot = call_t!(actor, SessionMessage::Snapshot, 1000).unwrap().unwrap();
    assert_eq!(snapshot.phase, Phase::Ready);
    let (interrupted, ()) = within(SOON, async {
        tokio::join!(async { call_t!(actor, SessionMessage::Interrupt, 1000) }, async {
            let request = end.expect_request("interrupt").await;
            end.fail_turn(&given, "aborted_streaming", "interrupted");
            end.answer(&request, json!({ "still_queued": [] }));
        })
    })
    .await;
    interrupted.unwrap().unwrap();
    assert!(matches!(outcome(&mut turn).await, Outcome::Interrupted { by: InterruptedBy::User, .. }));
    let (stopped, ()) = within(SOON, async {
        tokio::join!(async { call_t!(actor, SessionMessage::Stop, 10_000) }, end.run_out())
    })
    .await;
    stopped.unwrap().unwrap();
    assert_eq!(names(&rest(&mut events).await), ["session_captured", "stopping", "stopped"]);
    assert_eq!(within(SOON, hear.recv()).await, Some(Told::Stopped));
    assert!(call_t!(actor, SessionMessage::Snapshot, 1000).is_err(), "it is no more");
    desk.stop(None);
}

#[tokio::test(start_paused = true)]
async fn events_can_be_had_from_before_the_start() {
    let (transport, mut listener) = ScriptedCli::by_hand();
    let mut builder = Session::builder().transport(transport);
    let mut events = builder.events();
    let (session, end) = tokio::join!(builder.start(), async {
        let mut end = listener.accept().await;
        end.handshake().await;
        end
    });
    let session = session.unwrap();
    assert!(matches!(
        events.next().await,
        Some(Event::CliStarted { epoch: 1, pid: None, process: None, resumes: None, .. })
    ));
    assert!(matches!(events.next().await, Some(Event::CliReady { epoch: 1, .. })));
    let (stopped, ()) = tokio::join!(session.stop(), end.run_out());
    stopped.unwrap();
    let rest: Vec<Event> =
        std::iter::from_fn(|| futures_util::FutureExt::now_or_never(events.next()).flatten()).collect();
    assert!(matches!(rest[..], [Event::Stopping, Event::Stopped]), "{rest:?}");
}
