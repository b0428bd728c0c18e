//! What is run on a host: one line of POSIX shell each, since login shells differ in what they take over several.
//!
//! No secret is in any of them: all users of a host can read the arguments of its processes.

use super::super::MARK;
use super::error::NO_FOLDER;

/// A node's place on its host.
pub(super) struct Place<'a> {
    /// The folder, from the user's home unless it is absolute.
    pub folder: &'a str,
    /// The node's, in `nodes/`.
    pub node: &'a str,
    /// SHA-256 of the program, which is its name in `bin/`.
    pub hash: &'a str,
}

impl Place<'_> {
    fn folder(&self) -> String {
        match self.folder.starts_with('/') {
            true => quoted(self.folder),
            false => format!("\"$HOME\"/{}", quoted(self.folder)),
        }
    }

    /// Says what machine it is, how much room it has in KiB, and the hash of the program that it has, if it has one. Changes
    /// nothing there.
    pub(super) fn look(&self) -> String {
        let (folder, hash) = (self.folder(), self.hash);
        format!(
            "echo \"{MARK}system $(uname -s) $(uname -m)\"; at={folder}; \
             if test -f \"$at\"/bin/{hash}; then echo \"{MARK}has $(sha256sum <\"$at\"/bin/{hash})\"; fi; \
             until test -d \"$at\"; do at=$(dirname \"$at\"); done; \
             df -Pk \"$at\" | {{ read -r a; read -r a b c free e; echo \"{MARK}free $free\"; }}; exit 0"
        )
    }

    /// Takes the program of so many bytes from standard input. It has its name when it is whole.
    pub(super) fn take(&self, size: u64) -> String {
        let (folder, hash) = (self.folder(), self.hash);
        format!(
            "umask 077; mkdir -p {folder}/bin && cd {folder}/bin || exit {NO_FOLDER}; part=.{hash}.$$; \
             trap \"rm -f $part\" EXIT; trap \"rm -f $part; exit 74\" HUP INT TERM; cat >$part || exit 74; \
             test \"$(wc -c <$part)\" -eq {size} || {{ echo \"only a part of the program came\" >&2; exit 74; }}; \
             sum=$(sha256sum <$part 2>/dev/null); case \"$sum\" in \"\"|{hash}*) ;; \
             *) echo \"the program was garbled on its way\" >&2; exit 74;; esac; \
             chmod 700 $part && mv -f $part {hash}"
        )
    }

    /// Becomes the node's keeper, which reads its order from standard input. The program is linked into the node's folder, so
    /// that no other node that ends takes it away.
    pub(super) fn start(&self) -> String {
        let (folder, node, hash) = (self.folder(), self.node, self.hash);
        format!(
            "umask 077; cd {folder} && mkdir -p nodes/{node} || exit {NO_FOLDER}; \
             test nodes/{node}/program -ef bin/{hash} || ln -f bin/{hash} nodes/{node}/program 2>/dev/null || cp bin/{hash} nodes/{node}/program || exit {NO_FOLDER}; \
             exec nodes/{node}/program --corehold-role=keeper --corehold-state=\"$PWD\"/nodes/{node}"
        )
    }

    /// Ends the node if it runs, and removes what is left of it; the program too, unless that may stay.
    pub(super) fn reap(&self, keep_program: bool) -> String {
        let (folder, node, hash) = (self.folder(), self.node, self.hash);
        let program = match keep_program || hash.is_empty() {
            true => String::new(),
            false => format!("rm -f bin/{hash} bin/.{hash}.*; "),
        };
        format!(
            "cd {folder} 2>/dev/null || exit 0; if test -x nodes/{node}/program; then \
             nodes/{node}/program --corehold-role=reap --corehold-state=\"$PWD\"/nodes/{node} || test $? -gt 125 || exit 79; \
             fi; rm -rf nodes/{node} || exit 79; {program}rmdir bin nodes 2>/dev/null; cd / && rmdir {folder} 2>/dev/null; \
             exit 0"
        )
    }
}

/// The script as the login shell takes it, whichever that is.
pub(super) fn command(script: &str) -> String {
    format!("exec /bin/sh -c {}", quoted(script))
}

/// One word of a shell.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_takes_the_whole_script_and_any_folder() {
        let home = tempfile::tempdir().unwrap();
        let place = Place {
            folder: "a 'b' $c",
            node: "n",
            hash: "0123",
        };
        let sh = |script: &str, input: &str| {
            use std::io::Write as _;
            let mut child = std::process::Command::new("/bin/sh")
                .args(["-c", &command(script)])
                .env("HOME", home.path())
                .stdin(std::process::Stdio::piped())
                .stdout(std::process::Stdio::piped())
                .stderr(std::process::Stdio::piped())
                .spawn()
                .unwrap();
            // A script that does not read may be gone by now.
            let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
            let output = child.wait_with_output().unwrap();
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            (output.status.code().unwrap(), text)
        };
        let (status, said) = sh(&place.look(), "");
        assert_eq!(status, 0);
        assert!(said.contains("corehold: free "), "{said}");
        assert!(said.contains("corehold: system Linux "), "{said}");
        assert!(!said.contains("corehold: has"), "{said}");
        assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 0);
        // Cut off, and garbled: nothing stays.
        assert_eq!(sh(&place.take(5), "four").0, 74);
        assert_eq!(sh(&place.take(4), "four").0, 74);
        let bin = home.path().join(place.folder).join("bin");
        assert_eq!(std::fs::read_dir(&bin).unwrap().count(), 0);
        assert_eq!(sh(&place.reap(false), "").0, 0);
        assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 0);
    }
}
