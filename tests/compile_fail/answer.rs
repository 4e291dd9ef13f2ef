//! The compiler's answer, without what changes from day to day.

/// Removes what does not depend on the program: the lines of source outside of it, their numbers, the width of the
/// margin, which depends on these numbers, and how many types in all crates implement a trait.
pub(crate) fn normalised(answer: &str) -> String {
    let mut kept = String::new();
    // Whether the lines of source that follow are of another file.
    let mut elsewhere = false;
    for line in answer.lines() {
        if is_noise(line) {
            continue;
        }
        let Some(line) = Margin::of(line) else {
            elsewhere &= line == "...";
            if !elsewhere {
                kept += if is_count(line) { "            and others" } else { line };
                kept.push('\n');
            }
            continue;
        };
        match line.sign {
            "-->" | ":::" => {
                let file = line.rest.trim_start();
                elsewhere = !file.starts_with(super::FOLDER);
                let file = if elsewhere { file.split(':').next().unwrap_or_default() } else { file };
                kept += &format!("   {} {file}\n", line.sign);
            }
            "=" => {
                elsewhere = false;
                kept += &format!("    = {}\n", line.rest.trim_start());
            }
            _ if elsewhere => {}
            _ => kept += format!("{:>3} |{}", line.number, line.rest).trim_end(),
        }
        if line.sign == "|" && !elsewhere {
            kept.push('\n');
        }
    }
    kept.trim_end().to_owned() + "\n"
}

/// Lines that name a temporary file, or add nothing.
fn is_noise(line: &str) -> bool {
    line.contains("the full name for the type has been written to")
        || line.contains("consider using `--verbose` to print the full type name")
        || line.starts_with("error: aborting due to")
        || line.starts_with("For more information about")
}

/// The end of a list of types, `and 589 others`: their number depends on what else is built.
fn is_count(line: &str) -> bool {
    let number = line.trim_start().strip_prefix("and ").and_then(|rest| rest.strip_suffix(" others"));
    number.is_some_and(|number| number.bytes().all(|byte| byte.is_ascii_digit()))
}

/// A line with a margin: a number of a line, a sign, and the rest.
struct Margin<'a> {
    number: &'a str,
    sign: &'a str,
    rest: &'a str,
}

impl<'a> Margin<'a> {
    fn of(line: &'a str) -> Option<Self> {
        let unpadded = line.trim_start();
        let rest = unpadded.trim_start_matches(|c: char| c.is_ascii_digit());
        let number = &unpadded[..unpadded.len() - rest.len()];
        let rest = rest.trim_start();
        let sign = ["-->", ":::", "=", "|"].into_iter().find(|sign| rest.starts_with(sign))?;
        // A line without margin may begin with a number, but not with one of these signs after it.
        Some(Self { number, sign, rest: &rest[sign.len()..] })
    }
}

#[test]
fn only_the_source_of_the_program_stays() {
    let answer = "\
error[E0277]: bad
    --> tests/compile_fail/cases/a.rs:7:3
     |
   7 |   bad
     |   ^^^ here
     |
     = note: ours
             and 589 others
note: required by this
    --> src/tool/server.rs:1097:12
     |
1095 | fn tool()
     |    ---- in this
...
1097 |     H: It
     |        ^^ by this
     = note: the full name for the type has been written to '/tmp/x'

error: aborting due to 1 previous error

For more information about this error, try `rustc --explain E0277`.
";
    let kept = "\
error[E0277]: bad
   --> tests/compile_fail/cases/a.rs:7:3
    |
  7 |   bad
    |   ^^^ here
    |
    = note: ours
            and others
note: required by this
   --> src/tool/server.rs
";
    assert_eq!(normalised(answer), kept);
}
