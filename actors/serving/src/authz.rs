//! Authorization: the attributes of a request, and the API server's decision on them.
//!
//! Upstream: staging/src/k8s.io/apiserver/plugin/pkg/authorizer/webhook (1.36).

use std::rc::Rc;
use std::time::Duration;

use hyper::Method;
use logic_api::authz_attributes::{subresources, verb};

use crate::decision_cache::DecisionCache;
use crate::policy;
use crate::reviews::{Attributes, AuthenticatedUser, Decision, ReviewError, Reviews};

/// For users with more bytes of text than this no decision is cached: a caller's long names could fill the memory.
const MOST_TEXT: usize = 10_000;

/// Why a request is forbidden. The text is upstream's.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AuthorizationError {
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

/// Authorizes by the API server's reviews, or always.
#[derive(Debug)]
pub(crate) struct Authorizer<R> {
    mode: policy::AuthorizationPolicy,
    node: Rc<str>,
    fine_grained: bool,
    reviews: Rc<R>,
    known: DecisionCache<Attributes, Decision>,
}

impl<R: Reviews> Authorizer<R> {
    pub(crate) fn new(policy: &policy::Policy, reviews: Rc<R>) -> Self {
        Authorizer {
            mode: policy.authorization,
            node: policy.node_name.as_str().into(),
            fine_grained: policy.paths.fine_grained,
            reviews,
            known: DecisionCache::new(|decision| *decision == Decision::Allowed),
        }
    }

    /// Succeeds if the user may do this to the path under any of the path's names.
    pub(crate) async fn pass(
        &self,
        user: &Rc<AuthenticatedUser>,
        method: &Method,
        path: &str,
    ) -> Result<(), AuthorizationError> {
        let policy::AuthorizationPolicy::Webhook { allowed, refused } = self.mode else {
            return Ok(());
        };
        let (verb, subresources) = (verb(method.as_str()), subresources(path, self.fine_grained));
        for subresource in &subresources {
            let access = Attributes {
                user: Rc::clone(user),
                verb,
                subresource,
                node: Rc::clone(&self.node),
            };
            let keep = |verdict: &Decision| match verdict {
                _ if text(user) > MOST_TEXT => Duration::ZERO,
                Decision::Allowed => allowed,
                Decision::Refused => refused,
            };
            let (reviews, asked) = (Rc::clone(&self.reviews), access.clone());
            let ask = async move { reviews.access(&asked).await };
            match self.known.answer(access, keep, ask).await {
                Ok(Decision::Allowed) => return Ok(()),
                Ok(Decision::Refused) => {}
                Err(source) => {
                    return Err(AuthorizationError::Error {
                        user: user.name.clone(),
                        verb,
                        subresource,
                        source,
                    });
                }
            }
        }
        Err(AuthorizationError::Forbidden {
            user: user.name.clone(),
            verb,
            subresources,
        })
    }
}

fn text(user: &AuthenticatedUser) -> usize {
    let extra = user.extra.iter();
    let extra =
        extra.map(|(key, values)| key.len() + values.iter().map(String::len).sum::<usize>());
    let groups = user.groups.iter().map(String::len);
    user.name.len() + user.uid.len() + groups.sum::<usize>() + extra.sum::<usize>()
}
