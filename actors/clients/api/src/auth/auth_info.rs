//! The user of a kubeconfig: certificate, token or credential plugin, and the user to impersonate.

use std::path::PathBuf;

use http::{HeaderMap, HeaderName, HeaderValue};
use k8s_openapi::ByteString;
use kube::config::{AuthInfo, Cluster, ExecConfig, ExecInteractiveMode};

use super::client_certificate::{ClientCertificateError, ClientCertificateSource, PemSource};
use super::credentials::{AuthCredentials, TokenFile, basic, bearer};
use super::exec::{ExecPlugin, ExecPluginState};
use crate::client_config::{Identity, RestConfig, RestConfigError};
use crate::kubeconfig::KubeconfigReader;

impl KubeconfigReader<'_> {
    pub(crate) fn client_certificate_key(
        &self,
        user: &AuthInfo,
    ) -> Result<ClientCertificateSource, RestConfigError> {
        let certificate = self.source(
            "users[].user.client-certificate",
            user.client_certificate_data.as_deref(),
            user.client_certificate.as_deref(),
        )?;
        // The only way to what kube hides so well that its type cannot be named here.
        let plain = serde_json::to_value(user).unwrap_or_default();
        let key = self.source(
            "users[].user.client-key",
            plain["client-key-data"].as_str(),
            user.client_key.as_deref(),
        )?;
        let (certificate, key) = match (certificate, key) {
            (None, None) => return Ok(ClientCertificateSource::default()),
            (Some(certificate), Some(key)) => (certificate, key),
            (None, Some(_)) => {
                return Err(self.wrong("users[].user.client-certificate", "one for the client-key"));
            }
            (Some(_), None) => {
                return Err(self.wrong("users[].user.client-key", "one for the client-certificate"));
            }
        };
        let names = match &certificate {
            PemSource::Inline(_) => None,
            PemSource::File(path) => Some(path.clone()),
        };
        let own = ClientCertificateSource::new(certificate, key, kernel::now());
        if self.identity == Identity::Comes
            && matches!(&own, Err(ClientCertificateError::Unread(error)) if error.kind() == std::io::ErrorKind::NotFound)
        {
            return Ok(ClientCertificateSource::default());
        }
        own.map_err(|error| match error {
            ClientCertificateError::Unread(source) => RestConfigError::Unread {
                path: names.unwrap_or_else(|| self.path.to_owned()),
                source,
            },
            ClientCertificateError::Certificate => {
                self.wrong("users[].user.client-certificate", &error)
            }
            ClientCertificateError::Key | ClientCertificateError::Mismatch => {
                self.wrong("users[].user.client-key", &error)
            }
        })
    }

    pub(crate) fn credentials(
        &self,
        user: &AuthInfo,
        cluster: &Cluster,
    ) -> Result<AuthCredentials, RestConfigError> {
        let plain = serde_json::to_value(user).unwrap_or_default();
        let token = plain["token"].as_str().filter(|token| !token.is_empty());
        let token = token.map(|token| {
            bearer(token).ok_or_else(|| self.wrong("users[].user.token", "what fits a header"))
        });
        let token = token.transpose()?;
        if let Some(file) = user.token_file.as_deref().filter(|file| !file.is_empty()) {
            return Ok(AuthCredentials::File(TokenFile::new(
                self.beside(file),
                token,
            )));
        }
        if let Some(token) = token {
            return Ok(AuthCredentials::Fixed(token));
        }
        if let Some(name) = user.username.as_deref().filter(|name| !name.is_empty()) {
            let password = plain["password"].as_str().unwrap_or_default();
            let header = basic(name, password);
            let header =
                header.ok_or_else(|| self.wrong("users[].user.username", "what fits a header"))?;
            return Ok(AuthCredentials::Fixed(header));
        }
        if user.auth_provider.is_some() {
            return Err(self.wrong(
                "users[].user.auth-provider",
                "nothing: such providers are no more, use exec",
            ));
        }
        match &user.exec {
            Some(exec) => Ok(AuthCredentials::Exec(Box::new(self.plugin(exec, cluster)?))),
            None => Ok(AuthCredentials::None),
        }
    }

    fn plugin(&self, exec: &ExecConfig, cluster: &Cluster) -> Result<ExecPlugin, RestConfigError> {
        let field = |name: &str| format!("users[].user.exec.{name}");
        let api_version = exec.api_version.clone().unwrap_or_default();
        let versions = [
            "client.authentication.k8s.io/v1",
            "client.authentication.k8s.io/v1beta1",
        ];
        if !versions.contains(&api_version.as_str()) {
            return Err(self.wrong(field("apiVersion"), versions.join(" or ")));
        }
        let command = exec.command.clone().unwrap_or_default();
        if command.is_empty() {
            return Err(self.wrong(field("command"), "the name or path of an executable"));
        }
        match exec.interactive_mode {
            Some(ExecInteractiveMode::Always) => {
                return Err(self.wrong(
                    field("interactiveMode"),
                    "Never or IfAvailable: nobody sits at a node",
                ));
            }
            None if api_version == versions[0] => {
                return Err(self.wrong(field("interactiveMode"), "Never or IfAvailable"));
            }
            Some(ExecInteractiveMode::Never | ExecInteractiveMode::IfAvailable) | None => {}
        }
        let env = exec.env.iter().flatten();
        let env =
            env.filter_map(|pair| Some((pair.get("name")?.clone(), pair.get("value")?.clone())));
        Ok(ExecPlugin {
            command: match command.contains('/') {
                true => self.beside(&command),
                false => PathBuf::from(&command),
            },
            args: exec.args.clone().unwrap_or_default(),
            env: env.collect(),
            api_version,
            cluster: match exec.provide_cluster_info {
                true => Some(self.cluster_of_exec(cluster)?),
                false => None,
            },
            hint: exec.install_hint.clone().unwrap_or_default(),
            state: tokio::sync::Mutex::new(ExecPluginState::default()),
        })
    }

    /// The cluster as a plugin gets it, in KUBERNETES_EXEC_INFO.
    fn cluster_of_exec(&self, cluster: &Cluster) -> Result<serde_json::Value, RestConfigError> {
        let authority = self.source(
            "clusters[].cluster.certificate-authority",
            cluster.certificate_authority_data.as_deref(),
            cluster.certificate_authority.as_deref(),
        )?;
        let authority = authority.map(|source| self.read(&source)).transpose()?;
        let mut extensions = cluster.extensions.iter().flatten();
        let config = extensions.find(|named| named.name == "client.authentication.k8s.io/exec");
        let mut told = serde_json::json!({
            "server": cluster.server,
            "tls-server-name": cluster.tls_server_name,
            "insecure-skip-tls-verify": cluster.insecure_skip_tls_verify,
            "certificate-authority-data": authority.map(ByteString),
            "config": config.map(|named| &named.extension),
        });
        if let Some(fields) = told.as_object_mut() {
            fields.retain(|_, value| !value.is_null());
        }
        Ok(told)
    }

    /// The headers of every request: user agent and impersonation.
    pub(crate) fn headers(
        &self,
        user: &AuthInfo,
        access: &RestConfig,
    ) -> Result<HeaderMap, RestConfigError> {
        let agent = Some(access.user_agent.as_str()).filter(|agent| !agent.is_empty());
        let agent = agent.map(|agent| ("user-agent".to_owned(), agent, "the user agent"));
        let one = |name: &str, value| Some((name.to_owned(), value, "users[].user.as"));
        let name = user.impersonate.as_deref();
        let uid = user.impersonate_uid.as_deref();
        let groups = user.impersonate_groups.iter().flatten();
        let extra = user.impersonate_user_extra.iter().flatten();
        let extra = extra.flat_map(|(key, values)| {
            let name = format!("impersonate-extra-{}", key.to_lowercase());
            let field = "users[].user.as-user-extra";
            let header = move |value: &'_ String| (name.clone(), value.clone(), field);
            values.iter().map(header)
        });
        let extra: Vec<_> = extra.collect();
        let all = agent
            .into_iter()
            .chain(name.and_then(|name| one("impersonate-user", name)))
            .chain(uid.and_then(|uid| one("impersonate-uid", uid)))
            .chain(groups.filter_map(|group| one("impersonate-group", group)))
            .chain(
                extra
                    .iter()
                    .map(|(name, value, field)| (name.clone(), value.as_str(), *field)),
            );
        let mut headers = HeaderMap::new();
        for (name, value, field) in all {
            let fits = HeaderName::try_from(name)
                .ok()
                .zip(HeaderValue::from_str(value).ok());
            let (name, value) = fits.ok_or_else(|| self.wrong(field, "what fits a header"))?;
            headers.append(name, value);
        }
        Ok(headers)
    }
}
