//! The rules of the environment, and the URLs of proxies.

use super::*;

/// The cases of Go's TestUseProxy and TestCacheKeys are among these.
#[test]
fn no_proxy_excepts_names_addresses_and_ranges() {
    let rows = [
        ("", "example.com", false),
        ("", "localhost", true),
        ("", "127.0.0.1", true),
        ("", "::1", true),
        ("*", "example.com", true),
        ("example.com", "example.com", true),
        ("example.com", "EXAMPLE.com.", true),
        ("example.com", "www.example.com", true),
        ("example.com", "notexample.com", false),
        (".example.com", "www.example.com", true),
        (".example.com", "example.com", false),
        ("*.example.com", "www.example.com", true),
        ("*.example.com", "example.com", false),
        ("a.com, example.com", "example.com", true),
        ("example.com:6443", "example.com", true),
        ("example.com:443", "example.com", false),
        ("10.0.0.1", "10.0.0.1", true),
        ("10.0.0.1", "10.0.0.2", false),
        ("10.0.0.1:6443", "10.0.0.1", true),
        ("10.0.0.1:80", "10.0.0.1", false),
        ("10.0.0.0/8", "10.9.9.9", true),
        ("10.0.0.0/8", "11.0.0.1", false),
        ("10.0.0.0/33", "10.0.0.1", false),
        ("0.0.0.0/0", "11.0.0.1", true),
        ("0.0.0.0/0", "fd00::1", false),
        ("fd00::/8", "fd00::1", true),
        ("fd00::1", "fd00::1", true),
        ("[fd00::1]:6443", "fd00::1", true),
        ("[fd00::1]:80", "fd00::1", false),
        (",,", "example.com", false),
        (":6443", "example.com", false),
    ];
    for (none, host, is_direct) in rows {
        let environment = ProxyEnvironment {
            https: "http://proxy:3128".to_owned(),
            http: String::new(),
            none: none.to_owned(),
        };
        let proxy = environment.proxy(true, host, 6443).unwrap();
        assert_eq!(proxy.is_none(), is_direct, "{none} {host}");
        assert_eq!(environment.proxy(false, host, 6443), Ok(None));
    }
}

/// Upstream's cases of `proxy-url` in clientcmd's TestValidateClusterInfo, and Go's TestProxyFromEnvironment.
#[test]
fn a_url_of_a_proxy_has_a_scheme_a_host_and_perhaps_a_port_and_a_login() {
    let good = [
        ("http://10.0.0.9:3128", ProxyProtocol::Http, "10.0.0.9:3128"),
        ("http://proxy", ProxyProtocol::Http, "proxy:80"),
        ("https://u:p@proxy/", ProxyProtocol::Https, "proxy:443"),
        (
            "socks5://[fd00::1]",
            ProxyProtocol::Socks5,
            "[fd00::1]:1080",
        ),
        ("socks5h://proxy:9", ProxyProtocol::Socks5, "proxy:9"),
    ];
    for (url, protocol, place) in good {
        let proxy = Proxy::parse(url).unwrap();
        assert_eq!(
            (proxy.protocol, proxy.to_string().as_str()),
            (protocol, place),
            "{url}"
        );
        assert!(!format!("{proxy:?}").contains('@'));
    }
    let bad = [
        ("", ProxyUrlError::Malformed),
        ("proxy", ProxyUrlError::Malformed),
        ("http://", ProxyUrlError::Malformed),
        ("http://a b", ProxyUrlError::Malformed),
        ("ftp://proxy", ProxyUrlError::Scheme("ftp".to_owned())),
    ];
    for (url, error) in bad {
        assert_eq!(Proxy::parse(url), Err(error), "{url}");
    }
}
