//! The commands of the README, so that they can be executed as they stand.

/// The blocks marked `sh`, in order; each is its commands, one a line.
pub fn shell_blocks(markdown: &str) -> Vec<String> {
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
            None if line.trim_end() == "```sh" => open = Some(String::new()),
            None => {}
        }
    }
    blocks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_shell_blocks_are_commands() {
        let text = "a\n```sh\nmake run\nmake test\n```\n```json\n{}\n```\n```sh\nls\n```\n";
        assert_eq!(shell_blocks(text), ["make run\nmake test\n", "ls\n"]);
    }
}
