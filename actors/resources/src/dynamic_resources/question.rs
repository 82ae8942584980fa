//! A question to an actor of which only the question is known here.

use std::fmt;
use std::rc::Rc;
use std::time::Duration;

use futures_util::future::LocalBoxFuture;
use kernel::{Addr, Message, Reply};

/// Asks for an `A` by a `Q`; where there is none, the answer is a text that says why.
pub struct Question<Q, A>(Rc<dyn Fn(Q) -> LocalBoxFuture<'static, Result<A, String>>>);

impl<Q: 'static, A: Send + 'static> Question<Q, A> {
    /// Asks the actor at `addr`, which is started before, with the message that `question` makes.
    pub fn new<M: Message>(
        addr: Addr<M>,
        within: Duration,
        question: impl Fn(Q, Reply<Result<A, String>>) -> M + Clone + 'static,
    ) -> Self {
        Question(Rc::new(move |asked| {
            let (addr, question) = (addr.clone(), question.clone());
            Box::pin(async move {
                let answer = addr.ask(within, |reply| question(asked, reply)).await;
                answer.map_err(|error| error.to_string())?
            })
        }))
    }

    /// Answers at once.
    #[cfg(test)]
    pub(super) fn answered_by(answer: impl Fn(Q) -> Result<A, String> + 'static) -> Self {
        Question(Rc::new(move |asked| {
            Box::pin(std::future::ready(answer(asked)))
        }))
    }

    pub(super) async fn ask(&self, asked: Q) -> Result<A, String> {
        (self.0)(asked).await
    }
}

impl<Q, A> Clone for Question<Q, A> {
    fn clone(&self) -> Self {
        Question(Rc::clone(&self.0))
    }
}

impl<Q, A> fmt::Debug for Question<Q, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Question")
    }
}
