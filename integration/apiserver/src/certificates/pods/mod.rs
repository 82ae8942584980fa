//! The signer of pods' certificates: every PodCertificateRequest is signed, denied, or let lie, as a test wants it.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use anyhow::Context as _;
use base64::prelude::{BASE64_STANDARD as BASE64, Engine as _};
use rcgen::{CertificateSigningRequestParams, DnType, SanType};
use rustls::pki_types::CertificateSigningRequestDer;
use serde_json::{Value, json};
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::has;
use super::signing_policy::{CertificateValidity, SigningPolicy};
use crate::kinds::{self, Resource};
use crate::server::state::State;
use crate::{Server, clock};

/// The API's own, in seconds: what is not asked for, the least, the most, and the most of Kubernetes' own signers.
const USUAL: i64 = 86_400;
const LEAST: i64 = 3_600;
const MOST: i64 = 7_862_400;
const WORDS: [&str; 3] = ["Issued", "Denied", "Failed"];

pub(crate) fn resource() -> &'static Resource {
    kinds::find("certificates.k8s.io", "v1beta1", "podcertificaterequests")
        .expect("the resource stands in the table")
}

/// Signs as long as the server runs.
pub(crate) async fn run(state: Arc<State>) {
    let pulse = state.store().pulse();
    loop {
        let change = pulse.notified();
        decide_all(&state);
        change.await;
    }
}

fn decide_all(state: &State) {
    let (signing, lifetime) = {
        let settings = state.auth.settings();
        (settings.pod_signing, settings.pod_validity)
    };
    let word = match signing {
        SigningPolicy::Hold | SigningPolicy::Forget => return,
        SigningPolicy::Approve => ("Issued", "Issued", "signed"),
        SigningPolicy::Deny => ("Denied", "DeniedByTest", "nobody gets a certificate here"),
        SigningPolicy::Fail => (
            "Failed",
            "FailedByTest",
            "no certificate can be signed here",
        ),
    };
    let mut store = state.store();
    let waiting = store.list(resource(), "").into_iter();
    let waiting: Vec<Arc<Value>> = waiting.filter(|request| !is_decided(request)).collect();
    for request in waiting {
        let mut after = Value::clone(&request);
        let signed = match signing {
            SigningPolicy::Approve => sign(state, &mut after, lifetime),
            SigningPolicy::Hold
            | SigningPolicy::Forget
            | SigningPolicy::Deny
            | SigningPolicy::Fail => Ok(()),
        };
        match signed {
            Ok(()) => condition(&mut after, word),
            Err(why) => condition(&mut after, ("Failed", "Unsignable", &format!("{why:#}"))),
        }
        drop(store.put(resource(), after));
    }
}

fn is_decided(request: &Value) -> bool {
    WORDS.iter().any(|word| has(request, word))
}

fn condition(request: &mut Value, (kind, reason, message): (&str, &str, &str)) {
    request["status"]["conditions"] = json!([{
        "type": kind, "status": "True", "reason": reason, "message": message,
        "lastTransitionTime": clock::now_text(),
    }]);
}

fn sign(
    state: &State,
    request: &mut Value,
    lifetime: Option<CertificateValidity>,
) -> anyhow::Result<()> {
    let spec = request["spec"].clone();
    let text = |field: &str| spec[field].as_str().unwrap_or_default().to_string();
    let mut params = parsed(&spec).map_err(anyhow::Error::msg)?;
    let namespace = request["metadata"]["namespace"].clone();
    let namespace = namespace.as_str().unwrap_or_default();
    let path = format!(
        "spiffe://cluster.local/ns/{namespace}/sa/{}",
        text("serviceAccountName")
    );
    let wanted = &mut params.params;
    wanted
        .distinguished_name
        .push(DnType::CommonName, text("podName"));
    wanted
        .subject_alt_names
        .push(SanType::URI(path.try_into()?));
    let asked = spec["maxExpirationSeconds"].as_i64().unwrap_or(USUAL);
    let lifetime = lifetime.unwrap_or(CertificateValidity {
        seconds: asked,
        refresh_after: asked * 2 / 3,
    });
    let usages = ["digital signature", "client auth", "server auth"].map(str::to_string);
    let authority = &state.auth.authority;
    let leaf = authority.sign(params, &usages, lifetime.seconds)?;
    let (_, pem) = x509_parser::pem::parse_x509_pem(leaf.as_bytes())?;
    let (_, certificate) = X509Certificate::from_der(&pem.contents)?;
    let validity = certificate.validity();
    let at = |second: i64| -> anyhow::Result<String> {
        let time = jiff::Timestamp::from_second(second).context("no such time")?;
        Ok(clock::text(time))
    };
    let refresh_after = clock::later(clock::now(), lifetime.refresh_after);
    request["status"] = json!({
        "certificateChain": leaf + &authority.pem(),
        "notBefore": at(validity.not_before.timestamp())?,
        "beginRefreshAt": clock::text(refresh_after),
        "notAfter": at(validity.not_after.timestamp())?,
    });
    Ok(())
}

fn parsed(spec: &Value) -> Result<CertificateSigningRequestParams, String> {
    let der = spec["stubPKCS10Request"]
        .as_str()
        .and_then(|text| BASE64.decode(text).ok());
    let der = der.filter(|der| !der.is_empty()).ok_or("Required value")?;
    CertificateSigningRequestParams::from_der(&CertificateSigningRequestDer::from(der))
        .map_err(|why| format!("Invalid value: must be a valid PKCS#10 CSR: {why}"))
}

/// Says which field of a new request is wrong, and why.
pub(crate) fn check(spec: &Value) -> Result<(), (&'static str, String)> {
    let names = [
        ("spec.signerName", "signerName"),
        ("spec.podName", "podName"),
        ("spec.podUID", "podUID"),
        ("spec.serviceAccountName", "serviceAccountName"),
        ("spec.serviceAccountUID", "serviceAccountUID"),
        ("spec.nodeName", "nodeName"),
        ("spec.nodeUID", "nodeUID"),
    ];
    for (path, field) in names {
        if spec[field].as_str().is_none_or(str::is_empty) {
            return Err((path, "Required value".to_string()));
        }
    }
    let own = spec["signerName"]
        .as_str()
        .is_some_and(|name| name.starts_with("kubernetes.io/"));
    let most = if own { USUAL } else { MOST };
    let asked = spec["maxExpirationSeconds"].as_i64().unwrap_or_default();
    if !(LEAST..=most).contains(&asked) {
        let why = format!("Invalid value: {asked}: must be in the range [{LEAST}, {most}]");
        return Err(("spec.maxExpirationSeconds", why));
    }
    let annotations = spec["unverifiedUserAnnotations"]
        .as_object()
        .into_iter()
        .flatten();
    for (key, _) in annotations {
        if !key.contains('/') {
            let why = format!(
                "Invalid value: \"{key}\": must be a domain-prefixed key (such as \"acme.io/foo\")"
            );
            return Err(("spec.unverifiedUserAnnotations", why));
        }
    }
    // The deprecated encoding is taken upstream as well, but no node of 1.36 uses it.
    for field in ["pkixPublicKey", "proofOfPossession"] {
        if spec[field].as_str().is_some_and(|text| !text.is_empty()) {
            let why = "Forbidden: may not be set beside stubPKCS10Request".to_string();
            return Err(("spec.pkixPublicKey", why));
        }
    }
    parsed(spec).map_err(|why| ("spec.stubPKCS10Request", why))?;
    Ok(())
}

/// Fills in the defaults of a PodCertificateRequest's spec.
pub(crate) fn fill(spec: &mut Value) {
    if spec["maxExpirationSeconds"].is_null() {
        spec["maxExpirationSeconds"] = json!(USUAL);
    }
}

/// Checks that the spec does not change, and that a final condition is set only once.
pub(crate) fn check_change(before: &Value, after: &Value) -> Result<(), (&'static str, String)> {
    let immutable = || "Invalid value: field is immutable".to_string();
    if before["spec"] != after["spec"] {
        return Err(("spec", immutable()));
    }
    if is_decided(before) && before["status"] != after["status"] {
        return Err(("status", immutable()));
    }
    let words = WORDS.iter().filter(|word| has(after, word)).count();
    if words > 1 {
        let why = "Invalid value: \"Issued\", \"Denied\", and \"Failed\" are mutually exclusive";
        return Err(("status.conditions", why.to_string()));
    }
    Ok(())
}

impl Server {
    /// Says what becomes of pods' certificate requests from now on; those that wait are decided at once.
    pub fn sign_for_pods(&self, signing: SigningPolicy) {
        self.state.auth.settings().pod_signing = signing;
        decide_all(&self.state);
    }

    /// Says for how many seconds pods' certificates are good from now on, and after how many they are to be renewed.
    pub fn issue_to_pods(&self, seconds: i64, refresh_after: i64) {
        self.state.auth.settings().pod_validity = Some(CertificateValidity {
            seconds,
            refresh_after,
        });
    }
}
