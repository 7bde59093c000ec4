//! The code blocks of the README, so that they can be executed as they stand.

/// The blocks marked with that language, in order.
pub fn blocks(markdown: &str, language: &str) -> Vec<String> {
    let opening = format!("```{language}");
    let mut blocks = Vec::new();
    let mut open: Option<String> = None;
    for line in markdown.lines() {
        match &mut open {
            Some(block) if line.trim_end() == "```" => {
                blocks.push(std::mem::take(block));
                open = None;
            }
            Some(block) => {
                block.push_str(line);
                block.push('\n');
            }
            None if line.trim_end() == opening => open = Some(String::new()),
            None => {}
        }
    }
    blocks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_blocks_of_that_language() {
        let text = "a\n```sh\nmake run\nmake test\n```\n```json\n{}\n```\n```sh\nls\n```\n";
        assert_eq!(blocks(text, "sh"), ["make run\nmake test\n", "ls\n"]);
        assert_eq!(blocks(text, "json"), ["{}\n"]);
    }

    /// Every line of the failure matrix names scenarios that exist.
    #[test]
    fn the_failure_matrix_names_scenarios() {
        let scenarios = include_str!("../tests/scenarios/main.rs");
        let matrix = include_str!("../../docs/failure-matrix.md");
        let rows: Vec<&str> = matrix.lines().filter(|line| line.starts_with("| ")).skip(1).collect();
        assert!(rows.len() > 10, "docs/failure-matrix.md has another form");
        for row in rows {
            let named = row.trim_end_matches(" |").rsplit("| ").next().unwrap_or_default();
            for name in named.split(", ") {
                assert!(scenarios.contains(&format!("(\"{name}\", ")), "no scenario {name:?}: {row}");
            }
        }
    }
}
