//! Ask the handler of a request, and the inquiry handler behind it.

use super::elicitation::{DialogAnswer, DialogRequest, ElicitationAnswer, ElicitationRequest};
use super::inquiry::{Asked, Inquiry, InquiryAnswer};
use super::permission::{DecisionClassification, PermissionDecision, PermissionRequest};
use super::{CallbackContext, Handler, Replied};

/// A request that a handler of its own may leave open for the inquiry handler.
pub(crate) trait Askable: Clone + Send + 'static {
    type Decision: Send + 'static;

    fn is_open(decision: &Self::Decision) -> bool;

    fn into_inquiry(self) -> Result<Inquiry, String>;

    /// The decision of a person, or why the answer does not fit.
    fn decision(answer: InquiryAnswer, asked: Asked) -> Result<Self::Decision, String>;
}

impl Askable for PermissionRequest {
    type Decision = PermissionDecision;

    fn is_open(decision: &PermissionDecision) -> bool {
        decision.is_undecided()
    }

    fn into_inquiry(self) -> Result<Inquiry, String> {
        match self.read_questions() {
            None => Ok(Inquiry::Permission { request: self }),
            Some(questions) => Ok(Inquiry::Questions { questions: questions? }),
        }
    }

    fn decision(answer: InquiryAnswer, asked: Asked) -> Result<PermissionDecision, String> {
        Ok(match answer {
            InquiryAnswer::Allowed { input, updates } if asked == Asked::Permission => {
                let decision = input.map_or_else(PermissionDecision::allow, PermissionDecision::allow_with);
                if updates.is_empty() {
                    decision
                } else {
                    decision.updates(updates).classified(DecisionClassification::UserPermanent)
                }
            }
            InquiryAnswer::Answered(answers) if asked == Asked::Questions => {
                PermissionDecision::answer_questions(answers)
            }
            InquiryAnswer::Denied { message, interrupt: false } => PermissionDecision::deny(message),
            InquiryAnswer::Denied { message, interrupt: true } => {
                PermissionDecision::deny_and_interrupt(message)
            }
            InquiryAnswer::Dismissed => {
                PermissionDecision::deny("the user closed the request without an answer")
            }
            other => return Err(other.misfit(asked)),
        })
    }
}

impl Askable for ElicitationRequest {
    type Decision = ElicitationAnswer;

    fn is_open(answer: &ElicitationAnswer) -> bool {
        *answer == ElicitationAnswer::Undecided
    }

    fn into_inquiry(self) -> Result<Inquiry, String> {
        Ok(Inquiry::Elicitation { request: self })
    }

    fn decision(answer: InquiryAnswer, asked: Asked) -> Result<ElicitationAnswer, String> {
        match answer {
            InquiryAnswer::Accepted { content } => Ok(ElicitationAnswer::Accept(content)),
            InquiryAnswer::Denied { .. } => Ok(ElicitationAnswer::Decline),
            InquiryAnswer::Dismissed => Ok(ElicitationAnswer::Cancel),
            other => Err(other.misfit(asked)),
        }
    }
}

impl Askable for DialogRequest {
    type Decision = DialogAnswer;

    fn is_open(answer: &DialogAnswer) -> bool {
        *answer == DialogAnswer::Undecided
    }

    fn into_inquiry(self) -> Result<Inquiry, String> {
        Ok(Inquiry::Dialog { request: self })
    }

    fn decision(answer: InquiryAnswer, asked: Asked) -> Result<DialogAnswer, String> {
        match answer {
            InquiryAnswer::Completed { result } => Ok(DialogAnswer::Completed(result)),
            InquiryAnswer::Denied { .. } | InquiryAnswer::Dismissed => Ok(DialogAnswer::Cancelled),
            other => Err(other.misfit(asked)),
        }
    }
}

/// Asks the request's own handler, and the inquiry handler if there is no own one or if it leaves the request open.
pub(crate) async fn decide<R: Askable>(
    own: Option<Handler<R, R::Decision>>,
    inquiry: Option<Handler<Inquiry, InquiryAnswer>>,
    request: R,
    cx: CallbackContext,
) -> Replied<R::Decision> {
    let was_left_open = own.is_some();
    if let Some(own) = own {
        let Some(_) = &inquiry else { return own(request, cx).await };
        let decision = own(request.clone(), cx.clone()).await?;
        if !R::is_open(&decision) {
            return Ok(decision);
        }
    }
    let Some(ask) = inquiry else { return Err("the session has no handler for it".into()) };
    let asking = async {
        let inquiry = request.into_inquiry()?;
        let asked = inquiry.asked();
        R::decision(ask(inquiry, cx).await?, asked)
    };
    asking.await.map_err(|error| match was_left_open {
        true => format!("it left the request to the inquiry handler, which failed: {error}"),
        false => error,
    })
}
