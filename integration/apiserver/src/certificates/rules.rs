//! Validation of requests to the two signers for kubelets, with upstream's messages.

use rcgen::{CertificateParams, DnType, DnValue, SanType};
use serde_json::Value;

const NODES: &str = "system:nodes";
const NODE_PREFIX: &str = "system:node:";

/// The signers that the double is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KubeletSigner {
    Client,
    Serving,
}

impl KubeletSigner {
    /// Returns the signer that a request names; none where it is not the double.
    pub(crate) fn of(request: &Value) -> Option<KubeletSigner> {
        match request["spec"]["signerName"].as_str()? {
            "kubernetes.io/kube-apiserver-client-kubelet" => Some(KubeletSigner::Client),
            "kubernetes.io/kubelet-serving" => Some(KubeletSigner::Serving),
            _ => None,
        }
    }

    pub(super) fn check(self, wanted: &CertificateParams, usages: &[String]) -> Result<(), String> {
        let text = |kind: DnType| match wanted.distinguished_name.get(&kind) {
            Some(DnValue::Utf8String(text)) => text.clone(),
            Some(DnValue::PrintableString(text)) => text.as_str().to_string(),
            _ => String::new(),
        };
        if text(DnType::OrganizationName) != NODES {
            return Err(format!("subject organization is not {NODES}"));
        }
        if !text(DnType::CommonName).starts_with(NODE_PREFIX) {
            return Err(format!(
                "subject common name does not begin with {NODE_PREFIX}"
            ));
        }
        self.check_names(&wanted.subject_alt_names)?;
        let purpose = match self {
            KubeletSigner::Client => "client auth",
            KubeletSigner::Serving => "server auth",
        };
        let known = ["digital signature", "key encipherment", purpose];
        let complete = ["digital signature", purpose]
            .iter()
            .all(|usage| usages.iter().any(|one| one == usage));
        if !complete || usages.iter().any(|usage| !known.contains(&usage.as_str())) {
            return Err("usages did not match".to_string());
        }
        Ok(())
    }

    fn check_names(self, names: &[SanType]) -> Result<(), String> {
        let kinds = |wanted: fn(&SanType) -> bool| names.iter().any(wanted);
        if kinds(|name| matches!(name, SanType::Rfc822Name(_))) {
            return Err("email subjectAltNames are not allowed".to_string());
        }
        if kinds(|name| matches!(name, SanType::URI(_))) {
            return Err("URI subjectAltNames are not allowed".to_string());
        }
        let placed = kinds(|name| matches!(name, SanType::DnsName(_) | SanType::IpAddress(_)));
        match self {
            KubeletSigner::Client if placed => {
                Err("DNS or IP subjectAltNames are not allowed".to_string())
            }
            KubeletSigner::Serving if !placed => {
                Err("at least one DNS or IP subjectAltName is required".to_string())
            }
            KubeletSigner::Client | KubeletSigner::Serving => Ok(()),
        }
    }
}
