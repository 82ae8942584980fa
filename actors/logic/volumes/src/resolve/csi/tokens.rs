//! Tokens of the pod's service account, for a driver that acts in the pod's name.
//!
//! Upstream: `podServiceAccountTokenAttrs` of pkg/volume/csi/csi_mounter.go, pkg/kubelet/token (1.36).

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::storage::v1::CSIDriver;
use logic_api::objects::TokenSpec;

use super::super::lookup::ObjectLookup;
use crate::CsiToken;
use crate::files::refresh::look_at;

/// As often as upstream syncs every pod's volumes again.
const REPUBLISH_INTERVAL: SignedDuration = SignedDuration::from_secs(60);

#[derive(Debug, Default)]
pub(super) struct DriverTokens {
    pub(super) tokens: Vec<CsiToken>,
    /// When the first of them is to be renewed.
    pub(super) look_at: Option<Timestamp>,
}

/// The error is the cause as upstream words it.
pub(super) fn of(
    lookup: &mut ObjectLookup<'_>,
    driver: Option<&CSIDriver>,
) -> Result<DriverTokens, String> {
    let requests = driver.and_then(|driver| driver.spec.token_requests.as_deref());
    let mut made = DriverTokens::default();
    for request in requests.unwrap_or_default() {
        let wanted = TokenSpec::for_driver(lookup.pod, request);
        let now = lookup.context.now;
        let token = lookup.token(&wanted).filter(|token| token.expires > now);
        let token = token.ok_or_else(|| {
            let why = missing(lookup, &wanted);
            format!(
                "kubernetes.io/csi: mounter.SetUpAt failed to get service accoount token attributes: failed to fetch token: {why}"
            )
        })?;
        let renew_at = token.renew_at(wanted.expiration_seconds, SignedDuration::ZERO);
        let at = look_at(now, renew_at, token.expires);
        made.look_at = Some(made.look_at.map_or(at, |first| first.min(at)));
        made.tokens.push(CsiToken {
            audience: request.audience.clone(),
            token: token.token,
            expires: token.expires,
        });
    }
    Ok(made)
}

fn missing(lookup: &ObjectLookup<'_>, wanted: &TokenSpec) -> String {
    let TokenSpec {
        namespace,
        service_account: account,
        audiences,
        ..
    } = wanted;
    let refused = lookup.context.objects.refused_token(wanted);
    refused.unwrap_or_else(|| {
        let audience = audiences.first().map_or("", String::as_str);
        format!(
            "there is no token of service account {namespace}/{account} for audience {audience:?} that lasts"
        )
    })
}

/// When a driver with `requiresRepublish` is called again: each interval, or earlier when its tokens are renewed. None
/// for other drivers.
pub(super) fn refresh_at(
    now: Timestamp,
    driver: Option<&CSIDriver>,
    look_at: Option<Timestamp>,
) -> Option<Timestamp> {
    driver?.spec.requires_republish.filter(|wants| *wants)?;
    let next = now.checked_add(REPUBLISH_INTERVAL).unwrap_or(now);
    Some(look_at.map_or(next, |at| at.min(next)))
}
