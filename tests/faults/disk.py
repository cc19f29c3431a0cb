"""Faults in how capsules become files, and in what of them is believed."""

from tests.faults.fault import Fault

WRITING = ("tests/disk/test_writing.py",)
DAMAGE = ("tests/disk/test_damage.py",)
DIRECTORY = ("tests/disk/test_directory.py",)
TENSORS = ("tests/disk/test_tensors.py",)
FOLDER = ("tests/disk/test_folder.py",)
PRUNING = ("tests/disk/test_pruning.py",)

FAULTS = (
    Fault(
        "a part whose checksum is not compared",
        "flashrt/disk/parts.py",
        "if part_name(digest.hexdigest()) != file.name:",
        "if False:",
        (*DAMAGE, *DIRECTORY),
        "a flipped bit would be restored as a state",
    ),
    Fault(
        "a header that is believed",
        "flashrt/disk/tensors.py",
        "if layout.header != header:",
        "if False:",
        TENSORS,
        "offsets that overlap or lie behind the end would be cut out of the data",
    ),
    Fault(
        "a length that is believed",
        "flashrt/disk/tensors.py",
        "not 0 < length <= most",
        "not 0 < length",
        (*TENSORS, *DAMAGE),
        "a header of 2^63 bytes would be given room before a byte of it is read",
    ),
    Fault(
        "a part whose size is not that of its header",
        "flashrt/disk/parts.py",
        "if layout.file_bytes != size_bytes:",
        "if False:",
        DAMAGE,
        "a header that lies would have room made for data that is not there",
    ),
    Fault(
        "a manifest whose checksum is not compared",
        "flashrt/disk/manifest.py",
        "if envelope.digest != _digest(FORMAT, body) or",
        "if",
        ("tests/disk/test_manifest.py",),
        "a flipped bit of an id would restore another conversation",
    ),
    Fault(
        "a manifest of another capsule",
        "flashrt/disk/listing.py",
        "if manifest.file != name:",
        "if False:",
        (*DAMAGE, "tests/disk/test_listing.py"),
        "exchanged files, or those of another engine, would be restored as ours",
    ),
    Fault(
        "a file that is renamed before it is on the disk",
        "flashrt/disk/folder.py",
        "                os.fsync(descriptor)\n            yield name",
        "            yield name",
        WRITING,
        "after a power cut a manifest would name parts full of zeros",
    ),
    Fault(
        "parts that are not on the disk before their manifest",
        "flashrt/disk/writing.py",
        "            folder.sync()\n            with folder.written([self.data]",
        "            with folder.written([self.data]",
        WRITING,
        "after a power cut a manifest would name parts that are not there",
    ),
    Fault(
        "a manifest that is named first",
        "flashrt/disk/writing.py",
        "            for draft in missing.values():",
        "            with folder.written([self.data], now_s) as early:\n"
        "                folder.rename(early, file)\n"
        "            for draft in missing.values():",
        WRITING,
        "a crash would leave a capsule without its parts",
    ),
    Fault(
        "parts that are not looked at again before they are named",
        "flashrt/disk/writing.py",
        "                if not faults:\n",
        "                if True:\n",
        WRITING,
        "what another server took for an orphan would be missing in a capsule",
    ),
    Fault(
        "a damaged part that stays",
        "flashrt/disk/directory.py",
        "                    folder.remove(damaged.name)",
        "                    pass",
        DIRECTORY,
        "every further capsule of the lineage would be damaged as well",
    ),
    Fault(
        "a shared part that goes with the first of its capsules",
        "flashrt/disk/pruning.py",
        "if not references[name] and name not in self.keep:",
        "if name not in self.keep:",
        (*PRUNING, *DIRECTORY),
        "one eviction would tear every capsule of the conversation",
    ),
    Fault(
        "parts that go while a manifest cannot be read",
        "flashrt/disk/pruning.py",
        "return not self.takes_unread and any(",
        "return False and any(",
        ("tests/disk/test_listing.py",),
        "too many open files would tear every capsule in the directory",
    ),
    Fault(
        "links that are followed",
        "flashrt/disk/folder.py",
        "flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC",
        "flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC",
        FOLDER,
        "a link would have any file of the user read",
    ),
    Fault(
        "files that others may read",
        "flashrt/disk/folder.py",
        "os.fchmod(descriptor, 0o600)",
        "os.fchmod(descriptor, 0o644)",
        DIRECTORY,
        "conversations would be open to every user of the machine",
    ),
    Fault(
        "somebody's home that is taken for capsules",
        "flashrt/disk/opening.py",
        "if names and LOCK not in names:",
        "if False:",
        ("tests/disk/test_opening.py",),
        "a prune would find files there that it was never meant for",
    ),
    Fault(
        "a temporary that is deleted under its writer",
        "flashrt/disk/pruning.py",
        "> TEMPORARY_AGE_S and self.is_abandoned(found.name)",
        "> TEMPORARY_AGE_S",
        PRUNING,
        "a large part could never be written while another server prunes",
    ),
)
