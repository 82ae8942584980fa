//! The text that SPDY/3 header blocks are compressed against, as the protocol's draft 3 has it.

/// Each stands in the dictionary behind its length.
const WORDS: [&str; 65] = [
    "options",
    "head",
    "post",
    "put",
    "delete",
    "trace",
    "accept",
    "accept-charset",
    "accept-encoding",
    "accept-language",
    "accept-ranges",
    "age",
    "allow",
    "authorization",
    "cache-control",
    "connection",
    "content-base",
    "content-encoding",
    "content-language",
    "content-length",
    "content-location",
    "content-md5",
    "content-range",
    "content-type",
    "date",
    "etag",
    "expect",
    "expires",
    "from",
    "host",
    "if-match",
    "if-modified-since",
    "if-none-match",
    "if-range",
    "if-unmodified-since",
    "last-modified",
    "location",
    "max-forwards",
    "pragma",
    "proxy-authenticate",
    "proxy-authorization",
    "range",
    "referer",
    "retry-after",
    "server",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "user-agent",
    "vary",
    "via",
    "warning",
    "www-authenticate",
    "method",
    "get",
    "status",
    "200 OK",
    "version",
    "HTTP/1.1",
    "url",
    "public",
    "set-cookie",
    "keep-alive",
    "origin",
];

const REST: &str = "100101201202205206300302303304305306307402405406407408409410411412413414415416417\
    502504505203 Non-Authoritative Information204 No Content301 Moved Permanently400 Bad Request\
    401 Unauthorized403 Forbidden404 Not Found500 Internal Server Error501 Not Implemented\
    503 Service UnavailableJan Feb Mar Apr May Jun Jul Aug Sept Oct Nov Dec 00:00:00 Mon, Tue, Wed, \
    Thu, Fri, Sat, Sun, GMTchunked,text/html,image/png,image/jpg,image/gif,application/xml,\
    application/xhtml+xml,text/plain,text/javascript,publicprivatemax-age=gzip,deflate,sdch\
    charset=utf-8charset=iso-8859-1,utf-,*,enq=0.";

pub(super) fn dictionary() -> Vec<u8> {
    let mut text = Vec::with_capacity(1423);
    for word in WORDS {
        let length = u32::try_from(word.len()).unwrap_or_default();
        text.extend(length.to_be_bytes());
        text.extend(word.as_bytes());
    }
    text.extend(REST.as_bytes());
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn adler32(text: &[u8]) -> u32 {
        let (low, high) = text.iter().fold((1_u32, 0_u32), |(low, high), byte| {
            let low = (low + u32::from(*byte)) % 65_521;
            (low, (high + low) % 65_521)
        });
        high << 16 | low
    }

    #[test]
    fn it_is_the_text_of_the_protocol() {
        let text = dictionary();
        assert_eq!((text.len(), adler32(&text)), (1423, 0xe3c6_a7c2));
    }
}
