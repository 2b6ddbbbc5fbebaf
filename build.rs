//! Tells cargo that the scenarios are part of the program: a new file is a change too.

fn main() {
    let mut out = std::io::stdout();
    // Cargo reads this; where it does not, there is nobody to tell.
    let _ = std::io::Write::write_all(&mut out, b"cargo:rerun-if-changed=scenarios\n");
}
