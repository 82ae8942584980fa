//! Credentials for clients, and how a test changes their rights.

use anyhow::Context as _;
use base64::prelude::{BASE64_STANDARD as BASE64, Engine as _};
use serde_json::{Value, json};

use super::rights::MASTERS;
use super::{AccessAttributes, CertificateWithKey};
use crate::Server;
use crate::certificates::SigningPolicy;
use crate::endpoints::request_info::UserInfo;
use crate::server::options::AccessControl;

/// The user of a kubeconfig.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallerIdentity {
    /// `system:anonymous`: no credentials.
    Anonymous,
    /// A client certificate with this name and group.
    Certificate {
        /// The name of the user.
        name: String,
        /// The user's group.
        group: String,
    },
    /// This bearer token.
    Token(String),
}

impl CallerIdentity {
    /// Returns an administrator, of the group `system:masters`.
    pub fn admin() -> CallerIdentity {
        CallerIdentity::Certificate {
            name: "kubernetes-admin".to_string(),
            group: MASTERS.to_string(),
        }
    }

    /// Returns the identity of the node of this name: `system:node:NAME`, of the group `system:nodes`.
    pub fn node(name: &str) -> CallerIdentity {
        CallerIdentity::Certificate {
            name: format!("system:node:{name}"),
            group: "system:nodes".to_string(),
        }
    }
}

impl CertificateWithKey {
    /// Returns them as the user of a kubeconfig.
    pub(crate) fn as_user(&self) -> Value {
        json!({
            "client-certificate-data": BASE64.encode(self.certificate.as_bytes()),
            "client-key-data": BASE64.encode(self.key.as_bytes()),
        })
    }
}

/// Writes a kubeconfig with the server, its authority and the user's credentials inline.
pub(crate) fn write_kubeconfig(
    url: &str,
    authority: Option<&str>,
    user: &Value,
) -> anyhow::Result<String> {
    let mut cluster = json!({"server": url});
    if let Some(authority) = authority {
        cluster["certificate-authority-data"] = json!(BASE64.encode(authority.as_bytes()));
    }
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "double",
        "clusters": [{"name": "double", "cluster": cluster}],
        "users": [{"name": "double", "user": user}],
        "contexts": [{"name": "double", "context": {"cluster": "double", "user": "double"}}],
    });
    serde_json::to_string_pretty(&config).context("cannot write a kubeconfig")
}

impl Server {
    /// Returns the certificate of the authority of the cluster, as PEM.
    pub fn authority(&self) -> String {
        self.state.auth.root_certificate()
    }

    /// Returns a client certificate, good for so many seconds; less than none for one that has been good.
    pub fn client_certificate(
        &self,
        name: &str,
        group: &str,
        seconds: i64,
    ) -> anyhow::Result<CertificateWithKey> {
        self.state.auth.authority.client_named(name, group, seconds)
    }

    /// Returns a kubeconfig that has all it needs in itself.
    pub fn kubeconfig(&self, identity: &CallerIdentity) -> anyhow::Result<String> {
        let user = match identity {
            CallerIdentity::Anonymous => json!({}),
            CallerIdentity::Token(token) => json!({"token": token}),
            CallerIdentity::Certificate { .. }
                if self.state.options.security == AccessControl::Plain =>
            {
                json!({})
            }
            CallerIdentity::Certificate { name, group } => {
                let seconds = self.state.options.certificate_seconds;
                self.client_certificate(name, group, seconds)?.as_user()
            }
        };
        let authority = self.authority();
        let trusted = (self.state.options.security != AccessControl::Plain).then_some(&*authority);
        write_kubeconfig(&self.url(), trusted, &user)
    }

    /// Makes this a bearer token of a user of this name and these groups.
    pub fn token(&self, token: &str, name: &str, groups: &[&str]) {
        let groups = groups.iter().map(|group| (*group).to_string()).collect();
        let user = UserInfo {
            name: name.to_string(),
            groups,
            ..UserInfo::default()
        };
        self.state
            .auth
            .settings()
            .tokens
            .insert(token.to_string(), user);
    }

    /// Makes a bootstrap token, and returns a kubeconfig with it.
    pub fn bootstrap_kubeconfig(&self) -> anyhow::Result<String> {
        let (id, secret) = ("abcdef", "0123456789abcdef");
        let token = format!("{id}.{secret}");
        self.token(
            &token,
            &format!("system:bootstrap:{id}"),
            &[
                "system:bootstrappers",
                "system:bootstrappers:kubeadm:default-node-token",
            ],
        );
        self.kubeconfig(&CallerIdentity::Token(token))
    }

    /// Forgets a bearer token, also one that was issued.
    pub fn revoke_token(&self, token: &str) {
        self.state.auth.settings().tokens.remove(token);
        self.state.auth.issued.revoke(token);
    }

    /// Answers a user 401, whatever the credentials, or no longer does.
    pub fn refuse_user(&self, name: &str, refused: bool) {
        let mut settings = self.state.auth.settings();
        if refused {
            settings.refused.insert(name.to_string());
        } else {
            settings.refused.remove(name);
        }
    }

    /// Serves requests without credentials, or answers them 401.
    pub fn allow_anonymous(&self, allowed: bool) {
        self.state.auth.settings().anonymous = allowed;
    }

    /// Keeps nodes to their own affairs, or does not.
    pub fn guard_nodes(&self, guarded: bool) {
        self.state.auth.settings().guards_nodes = guarded;
    }

    /// Lets a test decide on requests first; where it returns none, the usual rights do.
    pub fn judge(&self, judge: impl Fn(&AccessAttributes) -> Option<bool> + Send + 'static) {
        self.state.auth.settings().judge = Some(Box::new(judge));
    }

    /// Returns the access reviews that were asked, oldest first.
    pub fn asked(&self) -> Vec<AccessAttributes> {
        self.state.auth.settings().asked.clone()
    }

    /// Says what becomes of certificate requests from now on.
    pub fn sign(&self, signing: SigningPolicy) {
        self.state.auth.settings().signing = signing;
    }

    /// Says for how many seconds certificates and tokens are good at most, from now on.
    pub fn issue_for(&self, seconds: i64) {
        self.state.auth.settings().seconds = seconds;
    }

    /// Carries WebSockets of kubectl to the kubelets as they are, instead of refusing them so that it comes with SPDY.
    pub fn carry_websockets(&self, carried: bool) {
        self.state.auth.settings().carry_websockets = carried;
    }
}
