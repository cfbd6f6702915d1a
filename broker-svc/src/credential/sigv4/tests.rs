//! Signatures against the vectors that AWS publishes: its test suite byte for byte, and the examples of S3's manual.

use std::time::{Duration, UNIX_EPOCH};

use http::HeaderMap;
use serde::Deserialize;

use super::*;
use crate::{headers::RequestHeaders, method::Method, target::Target};

const VECTORS: &str = include_str!("vectors.toml");
/// The suite's key.
const SUITE: (&str, &str) = ("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY");
/// The key of S3's examples, and their time, 2013-05-24T00:00:00Z.
const S3: (&str, &str) = ("AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY");
const S3_TIME: u64 = 1_369_353_600;

#[derive(Deserialize)]
struct Suite {
    vector: Vec<Vector>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Vector {
    name: String,
    at: String,
    region: String,
    service: String,
    method: String,
    url: String,
    #[serde(default)]
    headers: Vec<(String, String)>,
    #[serde(default)]
    body: String,
    session_token: Option<String>,
    #[serde(default = "yes")]
    normalize: bool,
    #[serde(default)]
    sign_body: bool,
    #[serde(default = "yes")]
    encode_twice: bool,
    /// Why this broker would not send it.
    refused: Option<String>,
    authorization: String,
}

const fn yes() -> bool {
    true
}

impl Vector {
    /// The request, if the rules for every call let it through.
    fn request(&self) -> Result<Outgoing, Refusal> {
        let target = Target::parse(&self.url)?;
        let given = RequestHeaders::check(&self.headers, "")?;
        let body = bytes::Bytes::from(self.body.clone());
        let mut headers: HeaderMap = given.lines.into_iter().collect();
        headers.extend(given.content_type.map(|kind| (http::header::CONTENT_TYPE, kind)));
        let method = Method::parse(&self.method).unwrap();
        Ok(Outgoing { method, url: target.url().clone(), headers, body })
    }

    /// How the suite wants it signed.
    fn settings(&self) -> SigningSettings {
        let mut settings = settings(&self.service);
        if !self.normalize {
            settings.uri_path_normalization_mode = UriPathNormalizationMode::Disabled;
        }
        if !self.encode_twice {
            settings.percent_encoding_mode = PercentEncodingMode::Single;
        }
        if self.sign_body {
            settings.payload_checksum_kind = PayloadChecksumKind::XAmzSha256;
        }
        settings
    }

    fn signed(&self, mut request: Outgoing) -> Outgoing {
        let signer = signer(SUITE.0, &self.region, &self.service);
        let key = Credentials::new(SUITE.0, SUITE.1, self.session_token.clone(), None, "test");
        let at = humantime::parse_rfc3339(&self.at).unwrap();
        sign_as(self.settings(), &mut request, &signer, &key, at).unwrap();
        request
    }
}

fn signer(id: &str, region: &str, service: &str) -> SigV4 {
    let [access_key_id, region, service] = [id, region, service].map(str::to_owned);
    SigV4 { access_key_id, region, service, session_token: None }
}

#[test]
fn c2_signatures_are_those_of_the_published_test_suite_byte_for_byte() {
    let suite: Suite = toml::from_str(VECTORS).unwrap();
    assert_eq!(suite.vector.len(), 39, "the suite is whole");
    let mut sent = 0;
    for vector in suite.vector {
        let name = &vector.name;
        let request = match (vector.request(), &vector.refused) {
            (Ok(request), None) => request,
            (Err(refusal), Some(rule)) => {
                assert_eq!(refusal.why.code(), rule, "{name}: {refusal}");
                continue;
            }
            (Ok(_), Some(rule)) => panic!("{name} would be sent, in spite of {rule}"),
            (Err(refusal), None) => panic!("{name} is refused: {refusal}"),
        };
        let signed = vector.signed(request);
        let at = vector.at.replace(['-', ':'], "");
        assert_eq!(signed.headers["authorization"], vector.authorization, "{name}");
        assert_eq!(signed.headers["x-amz-date"], at, "{name}");
        let token = signed.headers.get("x-amz-security-token").map(|token| token.to_str().unwrap());
        assert_eq!(token, vector.session_token.as_deref(), "{name}");
        assert_eq!(signed.headers.contains_key("x-amz-content-sha256"), vector.sign_body, "{name}");
        assert!(signed.headers["authorization"].is_sensitive(), "{name}");
        sent += 1;
    }
    assert_eq!(sent, 27);
}

#[test]
fn c2_the_broker_signs_as_the_suite_does_and_for_s3_as_its_manual_says() {
    let suite: Suite = toml::from_str(VECTORS).unwrap();
    // Without a word about normalising, encoding or the body a vector is signed as any service's request is.
    let plain = |vector: &&Vector| vector.normalize && vector.encode_twice && !vector.sign_body;
    let mut seen = 0;
    for vector in suite.vector.iter().filter(plain) {
        let Ok(mut request) = vector.request() else { continue };
        let key = Credentials::new(SUITE.0, SUITE.1, vector.session_token.clone(), None, "test");
        let at = humantime::parse_rfc3339(&vector.at).unwrap();
        sign(&mut request, &signer(SUITE.0, &vector.region, &vector.service), &key, at).unwrap();
        assert_eq!(request.headers["authorization"], vector.authorization, "{}", vector.name);
        seen += 1;
    }
    assert!(seen > 15, "{seen}");
}

fn signed_for_s3(request: (&str, &str, &[(&str, &str)], &str)) -> String {
    let (method, url, lines, body) = request;
    let lines: Vec<_> = lines.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let given = RequestHeaders::check(&lines, "").unwrap();
    let headers = given.lines.into_iter().collect();
    let (method, url) = (Method::parse(method).unwrap(), url::Url::parse(url).unwrap());
    let mut request = Outgoing { method, url, headers, body: body.to_owned().into() };
    let key = Credentials::new(S3.0, S3.1, None, None, "test");
    let at = UNIX_EPOCH + Duration::from_secs(S3_TIME);
    sign(&mut request, &signer(S3.0, "us-east-1", "s3"), &key, at).unwrap();
    let line = request.headers["authorization"].to_str().unwrap();
    line.split("Signature=").nth(1).unwrap().to_owned()
}

#[test]
fn signatures_are_those_of_the_published_examples_of_s3() {
    for (name, request, expected) in [
        (
            "get an object",
            ("GET", "https://examplebucket.s3.amazonaws.com/test.txt", &[("range", "bytes=0-9")][..], ""),
            "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41",
        ),
        (
            "put an object",
            (
                "PUT",
                "https://examplebucket.s3.amazonaws.com/test%24file.text",
                &[("date", "Fri, 24 May 2013 00:00:00 GMT"), ("x-amz-storage-class", "REDUCED_REDUNDANCY")],
                "Welcome to Amazon S3.",
            ),
            "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd",
        ),
        (
            "get a bucket's lifecycle",
            ("GET", "https://examplebucket.s3.amazonaws.com/?lifecycle", &[], ""),
            "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543",
        ),
        (
            "list a bucket",
            ("GET", "https://examplebucket.s3.amazonaws.com/?max-keys=2&prefix=J", &[], ""),
            "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7",
        ),
    ] {
        assert_eq!(signed_for_s3(request), expected, "{name}");
    }
}
