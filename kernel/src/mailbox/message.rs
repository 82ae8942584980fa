//! An actor's messages: one enum an actor.

use std::fmt;

/// A message: one enum an actor.
///
/// Every `Debug` enum that derives `strum::IntoStaticStr` is one.
pub trait Message: fmt::Debug + Send + 'static {
    /// Returns the variant's name, which is what a hung actor is reported with.
    fn name(&self) -> &'static str;
}

impl<M> Message for M
where
    M: fmt::Debug + Send + 'static,
    for<'a> &'a M: Into<&'static str>,
{
    fn name(&self) -> &'static str {
        self.into()
    }
}
