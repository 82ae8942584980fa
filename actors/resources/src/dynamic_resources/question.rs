//! A question to the API server, of which only the question is known here.

use std::fmt;
use std::rc::Rc;

use futures_util::future::LocalBoxFuture;

/// Asks for an `A` by a `Q`; where there is none, the answer is a text that says why.
pub struct Question<Q, A>(Rc<dyn Fn(Q) -> LocalBoxFuture<'static, Result<A, String>>>);

impl<Q, A> Question<Q, A> {
    /// Has the questions answered by `ask`, which has deadlines of its own.
    pub fn new<F>(ask: impl Fn(Q) -> F + 'static) -> Self
    where
        F: Future<Output = Result<A, String>> + 'static,
    {
        Question(Rc::new(move |asked| Box::pin(ask(asked))))
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
