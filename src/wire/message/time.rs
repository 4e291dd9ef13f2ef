//! Parses the CLI's timestamps.

/// Milliseconds since 1970 of an RFC 3339 time, such as `2026-01-02T03:04:05.678Z`. A crate for dates would be a
/// dependency for one subtraction.
pub(super) fn millis_of(text: &str) -> Option<u64> {
    let number = |range: std::ops::Range<usize>| -> Option<i64> {
        let digits = text.get(range)?;
        digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
    };
    let sign = |at: usize, wanted: &str| text.get(at..=at).filter(|found| wanted.contains(*found));
    let (year, month, day) = (number(0..4)?, number(5..7)?, number(8..10)?);
    let (hour, minute, second) = (number(11..13)?, number(14..16)?, number(17..19)?);
    let signs = [(4, "-"), (7, "-"), (10, "Tt "), (13, ":"), (16, ":")];
    if signs.iter().any(|(at, wanted)| sign(*at, wanted).is_none()) {
        return None;
    }
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let rest = text.get(19..)?;
    let fraction = rest.strip_prefix('.').unwrap_or_default();
    let fraction = &fraction[..fraction.bytes().take_while(u8::is_ascii_digit).count()];
    let fraction_end = if rest.starts_with('.') { 1 + fraction.len() } else { 0 };
    let digit = |at: usize| fraction.as_bytes().get(at).map_or(0, |digit| i64::from(digit - b'0'));
    let millis = digit(0) * 100 + digit(1) * 10 + digit(2);
    let offset_minutes = match &rest[fraction_end..] {
        "Z" | "z" => 0,
        zone => {
            let at = 19 + fraction_end;
            let minutes = number(at + 1..at + 3)? * 60 + number(at + 4..at + 6)?;
            if zone.len() != 6 {
                return None;
            }
            if sign(at, "+-")? == "-" { -minutes } else { minutes }
        }
    };
    // Days since 1970 in the proleptic Gregorian calendar. The year starts in March, so that a leap day is its last
    // day.
    let year = if month <= 2 { year - 1 } else { year };
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let days =
        era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468;
    let seconds = days * 86_400 + hour * 3600 + (minute - offset_minutes) * 60 + second;
    u64::try_from(seconds * 1000 + millis).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_are_parsed() {
        for (text, millis) in [
            ("1970-01-01T00:00:00Z", Some(0)),
            ("2026-11-20T08:42:13.680Z", Some(1_795_164_133_680)),
            ("2024-02-29T23:59:59.9Z", Some(1_709_251_199_900)),
            ("2024-03-01T00:00:00.123456Z", Some(1_709_251_200_123)),
            ("2024-03-01T01:30:00+01:30", Some(1_709_251_200_000)),
            ("2024-02-29T19:00:00-05:00", Some(1_709_251_200_000)),
            ("1969-12-31T23:59:59Z", None),
            ("2024-03-01", None),
            ("2024-13-01T00:00:00Z", None),
            ("2024-03-01T00:00:00", None),
            ("2024-03-01T00:00:00+1", None),
            ("2024-03-01T00:00:00.é", None),
            ("today, at about noon", None),
            ("", None),
        ] {
            assert_eq!(millis_of(text), millis, "{text}");
        }
    }
}
