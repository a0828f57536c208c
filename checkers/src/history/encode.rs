//! Events to JSON lines.
//!
//! The hot lines (invoke, ok, fail, info) are written by hand, because the recorder shares two cores
//! with the system under test; a property test holds them to exactly what `serde_json` would write.
//! Everything else goes through `serde_json`.

use super::event::{Completion, Event, Function, Invoke};

/// Appends `event` as one line, with its line feed.
///
/// # Errors
/// Only what `serde_json` reports; none of today's events can cause it.
pub fn encode(event: &Event, out: &mut Vec<u8>) -> serde_json::Result<()> {
    match event {
        Event::Invoke(invoke) => push_invoke(invoke, out)?,
        Event::Ok(completion) => push_completion(b"{\"e\":\"ok\"", completion, out)?,
        Event::Fail(completion) => push_completion(b"{\"e\":\"fail\"", completion, out)?,
        Event::Info(completion) => push_completion(b"{\"e\":\"info\"", completion, out)?,
        rare => serde_json::to_writer(&mut *out, rare)?,
    }
    out.push(b'\n');
    Ok(())
}

fn push_invoke(invoke: &Invoke, out: &mut Vec<u8>) -> serde_json::Result<()> {
    out.extend_from_slice(b"{\"e\":\"invoke\",\"op\":");
    push_number(invoke.op, out);
    field(b",\"client\":", invoke.client.into(), out);
    out.extend_from_slice(match invoke.f {
        Function::Acquire => b",\"f\":\"acquire\"",
        Function::Release => b",\"f\":\"release\"",
        Function::Read => b",\"f\":\"read\"",
        Function::Write => b",\"f\":\"write\"",
        Function::Holds => b",\"f\":\"holds\"",
    });
    out.extend_from_slice(b",\"lock\":");
    push_string(&invoke.lock, out)?;
    if let Some(key) = &invoke.key {
        out.extend_from_slice(b",\"key\":");
        push_string(key, out)?;
    }
    optional(b",\"element\":", invoke.element, out);
    field(b",\"at_ns\":", invoke.at_ns, out);
    out.push(b'}');
    Ok(())
}

fn push_completion(
    start: &[u8],
    completion: &Completion,
    out: &mut Vec<u8>,
) -> serde_json::Result<()> {
    out.extend_from_slice(start);
    field(b",\"op\":", completion.op, out);
    field(b",\"invoke_ns\":", completion.invoke_ns, out);
    field(b",\"return_ns\":", completion.return_ns, out);
    optional(b",\"token\":", completion.token, out);
    if completion.dead_on_arrival {
        out.extend_from_slice(b",\"dead_on_arrival\":true");
    }
    optional(b",\"wakes\":", completion.wakes, out);
    optional(b",\"version\":", completion.version, out);
    optional(b",\"base\":", completion.base, out);
    match completion.holds {
        Some(true) => out.extend_from_slice(b",\"holds\":true"),
        Some(false) => out.extend_from_slice(b",\"holds\":false"),
        None => {}
    }
    optional(b",\"renewed_ns\":", completion.renewed_ns, out);
    if let Some(error) = &completion.error {
        out.extend_from_slice(b",\"error\":");
        push_string(error, out)?;
    }
    out.push(b'}');
    Ok(())
}

fn field(name: &[u8], value: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(name);
    push_number(value, out);
}

fn optional(name: &[u8], value: Option<u64>, out: &mut Vec<u8>) {
    if let Some(value) = value {
        field(name, value, out);
    }
}

fn push_number(mut value: u64, out: &mut Vec<u8>) {
    // 20 digits hold u64::MAX.
    let mut digits = [0_u8; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (value % 10) as u8;
        value /= 10;
        if value == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

fn push_string(text: &str, out: &mut Vec<u8>) -> serde_json::Result<()> {
    let plain = text.bytes().all(|b| b >= 0x20 && b != b'"' && b != b'\\');
    if !plain {
        return serde_json::to_writer(out, text);
    }
    out.push(b'"');
    out.extend_from_slice(text.as_bytes());
    out.push(b'"');
    Ok(())
}
