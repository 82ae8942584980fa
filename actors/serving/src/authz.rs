//! What a caller may do: the attributes of its request, and the API server's verdict on them.
//!
//! Upstream: staging/src/k8s.io/apiserver/plugin/pkg/authorizer/webhook (1.36).

use std::rc::Rc;
use std::time::Duration;

use hyper::Method;
use logic_api::authz_attributes::{subresources, verb};

use crate::policy;
use crate::remembered::Remembered;
use crate::reviews::{Access, ReviewError, Reviews, User, Verdict};

/// A user of more text than this is asked for each time: whoever may choose it could fill the memory.
const MOST_TEXT: usize = 10_000;

/// Why a request goes no further. The text is upstream's.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Barred {
    #[error(
        "Forbidden (user={user}, verb={verb}, resource=nodes, subresource(s)=[{}])\n",
        subresources.join(" ")
    )]
    Forbidden {
        user: String,
        verb: &'static str,
        subresources: Vec<&'static str>,
    },
    #[error(
        "Authorization error (user={user}, verb={verb}, resource=nodes, subresource={subresource})"
    )]
    Error {
        user: String,
        verb: &'static str,
        subresource: &'static str,
        source: ReviewError,
    },
}

/// Decides by the API server's reviews, or lets everybody pass.
#[derive(Debug)]
pub(crate) struct Authorization<R> {
    mode: policy::Authorization,
    node: Rc<str>,
    fine_grained: bool,
    reviews: Rc<R>,
    known: Remembered<Access, Verdict>,
}

impl<R: Reviews> Authorization<R> {
    pub(crate) fn new(policy: &policy::Policy, reviews: Rc<R>) -> Self {
        Authorization {
            mode: policy.authorization,
            node: policy.node_name.as_str().into(),
            fine_grained: policy.paths.fine_grained,
            reviews,
            known: Remembered::new(),
        }
    }

    /// Passes if the user may do this to the path under any of the path's names.
    pub(crate) async fn pass(
        &self,
        user: &Rc<User>,
        method: &Method,
        path: &str,
    ) -> Result<(), Barred> {
        let policy::Authorization::Webhook { allowed, refused } = self.mode else {
            return Ok(());
        };
        let (verb, subresources) = (verb(method.as_str()), subresources(path, self.fine_grained));
        for subresource in &subresources {
            let access = Access {
                user: Rc::clone(user),
                verb,
                subresource,
                node: Rc::clone(&self.node),
            };
            let keep = |verdict: &Verdict| match verdict {
                _ if text(user) > MOST_TEXT => Duration::ZERO,
                Verdict::Allowed => allowed,
                Verdict::Refused => refused,
            };
            let (reviews, asked) = (Rc::clone(&self.reviews), access.clone());
            let ask = async move { reviews.access(&asked).await };
            match self.known.answer(access, keep, ask).await {
                Ok(Verdict::Allowed) => return Ok(()),
                Ok(Verdict::Refused) => {}
                Err(source) => {
                    return Err(Barred::Error {
                        user: user.name.clone(),
                        verb,
                        subresource,
                        source,
                    });
                }
            }
        }
        Err(Barred::Forbidden {
            user: user.name.clone(),
            verb,
            subresources,
        })
    }
}

fn text(user: &User) -> usize {
    let extra = user.extra.iter();
    let extra =
        extra.map(|(key, values)| key.len() + values.iter().map(String::len).sum::<usize>());
    let groups = user.groups.iter().map(String::len);
    user.name.len() + user.uid.len() + groups.sum::<usize>() + extra.sum::<usize>()
}
