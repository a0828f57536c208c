//! One JSON line to one event, with errors that name the field.
//!
//! `serde`'s own way for a tagged enum buffers every field before it looks at the tag. Our writer puts
//! the tag first, so that the rest can be parsed straight into its struct; any other order still works.

use serde::de::DeserializeOwned;
use serde_json::{Value, error::Category};

use super::error::Problem;
use super::event::Event;
use super::lines::shorten;

/// Decodes a line that [`super::hot`] does not know. The buffer is changed while it works and is as it
/// was when it returns.
pub(crate) fn by_serde(line: &mut [u8]) -> Result<Event, Problem> {
    let Some((kind, comma)) = leading_tag(line) else {
        return decode_any_order(line);
    };
    let kind = kind.to_owned();
    // `{"e":"ok","op":1}` is parsed as `{"op":1}`: the comma becomes the opening brace.
    line[comma] = b'{';
    let event = by_kind(&kind, Body::Bytes(&line[comma..]));
    line[comma] = b',';
    event.map_err(|fault| fault.into_problem(&kind, line))
}

/// The kind and the position of the comma after it, when the line starts as our writer starts it.
fn leading_tag(line: &[u8]) -> Option<(&str, usize)> {
    const START: &[u8] = b"{\"e\":\"";
    let rest = line.strip_prefix(START)?;
    let end = rest.iter().position(|&b| b == b'"')?;
    if rest.get(end + 1) != Some(&b',') {
        return None;
    }
    let kind = std::str::from_utf8(&rest[..end]).ok()?;
    Some((kind, START.len() + end + 1))
}

fn decode_any_order(line: &[u8]) -> Result<Event, Problem> {
    let not_json = |detail: String| Problem::NotJson {
        found: shorten(line),
        detail,
    };
    let value: Value = serde_json::from_slice(line).map_err(|error| not_json(reason(&error)))?;
    let Value::Object(mut fields) = value else {
        return Err(not_json("it is JSON, but not an object".to_owned()));
    };
    let kind = match fields.remove("e") {
        Some(Value::String(kind)) => kind,
        other => {
            return Err(Problem::UnknownKind {
                kind: other.map_or_else(|| "(no field `e`)".to_owned(), |v| v.to_string()),
                found: shorten(line),
            });
        }
    };
    by_kind(&kind, Body::Value(Value::Object(fields)))
        .map_err(|fault| fault.into_problem(&kind, line))
}

enum Body<'b> {
    Bytes(&'b [u8]),
    Value(Value),
}

enum Fault {
    Kind,
    Json(serde_json::Error),
}

impl Body<'_> {
    fn parse<T: DeserializeOwned>(self) -> Result<T, Fault> {
        match self {
            Body::Bytes(bytes) => serde_json::from_slice(bytes),
            Body::Value(value) => serde_json::from_value(value),
        }
        .map_err(Fault::Json)
    }
}

fn by_kind(kind: &str, body: Body<'_>) -> Result<Event, Fault> {
    Ok(match kind {
        "header" => Event::Header(body.parse()?),
        "client" => Event::Client(body.parse()?),
        "invoke" => Event::Invoke(body.parse()?),
        "ok" => Event::Ok(body.parse()?),
        "fail" => Event::Fail(body.parse()?),
        "info" => Event::Info(body.parse()?),
        "lost" => Event::Lost(body.parse()?),
        "access" => Event::Access(body.parse()?),
        "lease" => Event::Lease(body.parse()?),
        "leader" => Event::Leader(body.parse()?),
        "fault" => Event::Fault(body.parse()?),
        "final" => Event::Final(body.parse()?),
        "end" => Event::End(body.parse()?),
        _ => return Err(Fault::Kind),
    })
}

impl Fault {
    fn into_problem(self, kind: &str, line: &[u8]) -> Problem {
        let found = shorten(line);
        match self {
            Fault::Kind => Problem::UnknownKind {
                kind: format!("`{}`", shorten(kind.as_bytes())),
                found,
            },
            Fault::Json(error) if error.classify() == Category::Data => Problem::BadFields {
                kind: kind.to_owned(),
                detail: reason(&error),
                found,
            },
            Fault::Json(error) => Problem::NotJson {
                found,
                detail: reason(&error),
            },
        }
    }
}

/// The parser's words without its own line and column, which would be read as the file's.
fn reason(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let end = text.rfind(" at line ").unwrap_or(text.len());
    text[..end].to_owned()
}
