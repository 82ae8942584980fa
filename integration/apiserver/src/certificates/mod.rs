//! Certificate requests: approved and signed as the controllers of a cluster would, or held until a test has decided.

pub(crate) mod pods;
mod rules;
pub(crate) mod signing_policy;
#[cfg(test)]
mod tests;

use base64::prelude::{BASE64_STANDARD as BASE64, Engine as _};
use rcgen::CertificateSigningRequestParams;
use serde_json::{Value, json};

pub(crate) use self::rules::KubeletSigner;
pub use self::signing_policy::SigningPolicy;
use crate::auth::CertificateAuthority;
use crate::server::state::State;
use crate::{Server, StatusError, clock};

/// A certificate is asked for at least this long, as upstream has it.
const SHORTEST: i64 = 600;

/// Handles each write of a certificate request before it is stored, and may fill in its status.
pub(crate) fn written(state: &State, request: &mut Value) {
    let (signing, seconds) = {
        let settings = state.auth.settings();
        (settings.signing, settings.seconds)
    };
    let Some(signer) = KubeletSigner::of(request) else {
        return;
    };
    match signing {
        SigningPolicy::Approve | SigningPolicy::Fail | SigningPolicy::Forget => approve(request),
        SigningPolicy::Deny if !decided(request) => condition(
            request,
            "Denied",
            "DeniedByTest",
            "nobody gets a certificate here",
        ),
        SigningPolicy::Deny | SigningPolicy::Hold => {}
    }
    if !has(request, "Approved") || is_over(request) || signing == SigningPolicy::Forget {
        return;
    }
    if signing == SigningPolicy::Fail {
        return condition(
            request,
            "Failed",
            "SignerValidationFailure",
            "no certificate can be signed here",
        );
    }
    sign(&state.auth.authority, signer, request, seconds);
}

/// Approves a request that is neither approved nor denied, as the controller does for kubelets.
pub(crate) fn approve(request: &mut Value) {
    if !decided(request) {
        condition(
            request,
            "Approved",
            "AutoApproved",
            "Auto approving kubelet client certificate after SubjectAccessReview.",
        );
    }
}

/// Says whether nothing more becomes of a request.
pub(crate) fn is_over(request: &Value) -> bool {
    has(request, "Failed") || has(request, "Denied") || request["status"]["certificate"].is_string()
}

/// Signs a request, for so many seconds at most, or says in it why not.
pub(crate) fn sign(
    authority: &CertificateAuthority,
    signer: KubeletSigner,
    request: &mut Value,
    most: i64,
) {
    match signed(authority, signer, request, most) {
        Ok(certificate) => {
            request["status"]["certificate"] = json!(BASE64.encode(certificate.as_bytes()))
        }
        Err(why) => condition(request, "Failed", "SignerValidationFailure", &why),
    }
}

fn signed(
    authority: &CertificateAuthority,
    signer: KubeletSigner,
    request: &Value,
    most: i64,
) -> Result<String, String> {
    let pem = request["spec"]["request"]
        .as_str()
        .and_then(|text| BASE64.decode(text).ok())
        .and_then(|pem| String::from_utf8(pem).ok());
    let pem = pem.ok_or("unable to parse csr: no PEM block")?;
    let params = CertificateSigningRequestParams::from_pem(&pem).map_err(|why| {
        format!(
            "unable to parse csr \"{}\": {why}",
            request["metadata"]["name"]
        )
    })?;
    let usages = crate::auth::attributes::words(&request["spec"]["usages"]);
    signer.check(&params.params, &usages)?;
    let asked = request["spec"]["expirationSeconds"].as_i64();
    let seconds = asked.map_or(most, |asked| asked.max(SHORTEST).min(most));
    authority
        .sign(params, &usages, seconds)
        .map_err(|why| format!("{why:#}"))
}

fn has(request: &Value, kind: &str) -> bool {
    let conditions = request["status"]["conditions"]
        .as_array()
        .into_iter()
        .flatten();
    conditions
        .into_iter()
        .any(|condition| condition["type"] == kind)
}

fn decided(request: &Value) -> bool {
    has(request, "Approved") || has(request, "Denied")
}

fn condition(request: &mut Value, kind: &str, reason: &str, message: &str) {
    let now = clock::now_text();
    let condition = json!({"type": kind, "status": "True", "reason": reason, "message": message, "lastUpdateTime": now, "lastTransitionTime": now});
    match request["status"]["conditions"].as_array_mut() {
        Some(conditions) => conditions.push(condition),
        None => request["status"]["conditions"] = json!([condition]),
    }
}

impl Server {
    /// Approves a certificate request, as `kubectl certificate approve` does.
    pub fn approve(&self, name: &str) -> Result<Value, StatusError> {
        self.decide(
            name,
            "Approved",
            "KubectlApprove",
            "This CSR was approved by kubectl certificate approve.",
        )
    }

    /// Denies a certificate request, as `kubectl certificate deny` does.
    pub fn deny(&self, name: &str) -> Result<Value, StatusError> {
        self.decide(
            name,
            "Denied",
            "KubectlDeny",
            "This CSR was denied by kubectl certificate deny.",
        )
    }

    fn decide(
        &self,
        name: &str,
        kind: &str,
        reason: &str,
        message: &str,
    ) -> Result<Value, StatusError> {
        let path = format!("/apis/certificates.k8s.io/v1/certificatesigningrequests/{name}");
        let mut request = self.get(&path)?;
        condition(&mut request, kind, reason, message);
        self.put(&format!("{path}/approval"), &request)
    }
}
