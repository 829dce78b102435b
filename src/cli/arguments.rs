//! Values that options take.

use crate::base::Rect;

/// Milliseconds from a text such as `500ms`, `30s`, `5m` or `1h`; a bare number is seconds.
pub(super) fn duration_ms(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let scale = match &text[digits.len()..] {
        "ms" => 1,
        "" | "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        unit => return Err(format!("unit {unit:?} is not ms, s, m or h")),
    };
    let number: f64 = digits
        .parse()
        .map_err(|_| format!("{digits:?} is no number"))?;
    let ms = number * f64::from(scale);
    if !(0.0..=1e15).contains(&ms) {
        return Err("is out of range".to_owned());
    }
    Ok(ms.round() as u64)
}

/// `x,y,width,height` in pixels.
pub(super) fn region(text: &str) -> Result<Rect, String> {
    let why = || "is not x,y,width,height".to_owned();
    let parts: Vec<&str> = text.split(',').map(str::trim).collect();
    let [x, y, width, height] = parts.as_slice() else {
        return Err(why());
    };
    Ok(Rect::new(
        x.parse().map_err(|_| why())?,
        y.parse().map_err(|_| why())?,
        width.parse().map_err(|_| why())?,
        height.parse().map_err(|_| why())?,
    ))
}

/// `key=value`.
pub(super) fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("is not key=value".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_units() {
        assert_eq!(duration_ms("500ms"), Ok(500));
        assert_eq!(duration_ms("1.5s"), Ok(1_500));
        assert_eq!(duration_ms("2"), Ok(2_000));
        assert_eq!(duration_ms("5m"), Ok(300_000));
        for bad in ["", "s", "-1s", "1d", "1e99s", "NaN"] {
            assert!(duration_ms(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn regions_and_pairs() {
        assert_eq!(region("-1, 2,3,4"), Ok(Rect::new(-1, 2, 3, 4)));
        assert!(region("1,2,3").is_err() && region("1,2,-3,4").is_err());
        assert_eq!(pair("a=b=c"), Ok(("a".into(), "b=c".into())));
        assert!(pair("=x").is_err() && pair("x").is_err());
    }
}
