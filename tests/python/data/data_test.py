"""weft.data: files written with struct and gzip, MNIST's folder, mini-batches; the full sets if available."""

from __future__ import annotations

import gzip
import math
import os
import struct
from pathlib import Path

import pytest
import torch

from weft import data

ROOT = Path(__file__).resolve().parents[3]
FULL = Path(os.environ.get("WEFT_TEST_DATA", ROOT.parent / "shared" / "data"))
TYPES = {
    0x08: ("B", torch.uint8, [0, 1, 255]),
    0x09: ("b", torch.int8, [-128, 0, 127]),
    0x0B: ("h", torch.int16, [-32768, 258, 3]),
    0x0C: ("i", torch.int32, [-(2**31), 16909060, 3]),
    0x0D: ("f", torch.float32, [1.5, -0.0, math.inf]),
    0x0E: ("d", torch.float64, [1 / 3, -1e300, math.nan]),
}


def full(name: str) -> Path:
    if not (FULL / name).exists():
        pytest.skip(f"the full {name} is not in {FULL}; set WEFT_TEST_DATA to its parent folder")
    return FULL / name


def idx(code: int, shape: tuple[int, ...], content: bytes) -> bytes:
    return struct.pack(f">4B{len(shape)}I", 0, 0, code, len(shape), *shape) + content


def write_mnist(folder: Path, train: int, suffix: str = "") -> None:
    folder.mkdir(parents=True, exist_ok=True)
    files = {
        "train-images-idx3-ubyte": idx(8, (train, 2, 2), bytes(range(4 * train))),
        "train-labels-idx1-ubyte": idx(8, (train,), bytes(n % 10 for n in range(train))),
        "t10k-images-idx3-ubyte": idx(8, (1, 2, 2), bytes([1, 2, 3, 4])),
        "t10k-labels-idx1-ubyte": idx(8, (1,), bytes([7])),
    }
    for name, content in files.items():
        (folder / (name + suffix)).write_bytes(gzip.compress(content) if suffix else content)


@pytest.mark.parametrize("gzipped", [False, True])
@pytest.mark.parametrize("code", TYPES)
def test_idx_reads_every_type(tmp_path: Path, code: int, gzipped: bool) -> None:
    letter, dtype, values = TYPES[code]
    content = idx(code, (3, 1), struct.pack(f">3{letter}", *values))
    path = tmp_path / "array"
    path.write_bytes(gzip.compress(content) if gzipped else content)
    array = data.read_idx(str(path))
    assert array.dtype == dtype
    torch.testing.assert_close(array, torch.tensor(values, dtype=dtype).view(3, 1), rtol=0, atol=0, equal_nan=True)
    array += 1  # the tensor is writable


def test_idx_reads_any_shape(tmp_path: Path) -> None:
    path = tmp_path / "array"
    for shape in [(), (0,), (0, 28, 28), (1, 2, 1, 3, 1), (300, 233)]:
        path.write_bytes(idx(8, shape, bytes(n % 251 for n in range(math.prod(shape)))))
        array = data.read_idx(path)
        assert array.shape == shape
        assert array.flatten().tolist() == [n % 251 for n in range(math.prod(shape))]


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"", "4 bytes missing"),
        (b"\0\0\x08", "1 bytes missing"),
        (b"\0\1\x08\1\0\0\0\1\7", "not an IDX file: it starts with the bytes 0 1 8 1"),
        (idx(0x0A, (1,), b"7"), "not an IDX file"),
        (b"\0\0\x08\2\0\0\0\1\0", "3 bytes missing"),
        (idx(8, (2, 3), b"12345"), "2 x 3 items of 1 bytes, got 5"),
        (idx(8, (2,), b"123"), "2 items of 1 bytes, got 3"),
        (idx(0x0E, (2**32 - 1,) * 9, b""), "got 0 bytes"),
        (gzip.compress(idx(8, (900,), os.urandom(900)))[:-30], "cannot decompress"),
        (b"\x1f\x8bnonsense", "cannot decompress"),
    ],
)
def test_idx_rejects_damaged_files(tmp_path: Path, content: bytes, text: str) -> None:
    path = tmp_path / "array"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=text) as failure:
        data.read_idx(path)
    assert str(path) in str(failure.value)


def test_missing_files_raise_file_not_found_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="absent"):
        data.read_idx(tmp_path / "absent")
    with pytest.raises(FileNotFoundError, match="absent"):
        data.mnist(tmp_path / "absent")


def test_cifar10_reads_and_validates_records(tmp_path: Path) -> None:
    path = tmp_path / "batch.bin"
    planes = [bytes([value]) * 1024 for value in (10, 20, 30, 40, 50, 60)]
    content = b"\3" + b"".join(planes[:3]) + b"\x09" + b"".join(planes[3:])
    for stored in (content, gzip.compress(content)):
        path.write_bytes(stored)
        images, labels = data.read_cifar10(path)
        assert images.shape == (2, 3, 32, 32) and images.dtype == torch.uint8
        assert labels.tolist() == [3, 9] and labels.dtype == torch.int64
        assert images.float().mean((2, 3)).tolist() == [[10, 20, 30], [40, 50, 60]]
    for stored, text in (
        (b"", "at least one"),
        (content[:-1], "1 records and 3072 extra bytes"),
        (b"\x0a" + content[1:], "got 10"),
    ):
        path.write_bytes(stored)
        with pytest.raises(ValueError, match=text):
            data.read_cifar10(path)


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize("place", ["", "MNIST", "mnist"])
def test_mnist_is_found_in_common_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, suffix: str
) -> None:
    write_mnist(tmp_path / place, 3, suffix)
    monkeypatch.setenv("WEFT_DATA", str(tmp_path))
    train, test = data.mnist()
    assert train.images.flatten().tolist() == list(range(12)) and train.images.shape == (3, 1, 2, 2)
    assert train.labels.tolist() == [0, 1, 2] and test.labels.tolist() == [7]


def test_missing_mnist_names_the_alternatives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_DATA", str(tmp_path))
    for text in ("WEFT_DATA", "make env"):
        with pytest.raises(FileNotFoundError, match=text):
            data.mnist()


def test_labels_must_match_the_images(tmp_path: Path) -> None:
    write_mnist(tmp_path, 3)
    labels = tmp_path / "train-labels-idx1-ubyte"
    for content, text in (
        (idx(8, (2,), b"\1\1"), "3 images and 2 labels"),
        (idx(8, (3,), b"\1\x0a\1"), "labels from 0 to 9, got 10"),
        (idx(8, (3, 2, 2), bytes(12)), r"array of bytes with 1 dimension, got Byte of shape \[3, 2, 2\]"),
        (idx(0x0C, (3,), bytes(12)), "array of bytes"),
    ):
        labels.write_bytes(content)
        with pytest.raises(ValueError, match=text):
            data.mnist(tmp_path)


def test_the_sample_is_balanced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WEFT_DATA", raising=False)
    train, test = data.mnist()
    assert train.images.shape == (4000, 1, 28, 28) and test.images.shape == (1000, 1, 28, 28)
    assert train.labels.bincount().tolist() == [400] * 10 and test.labels.bincount().tolist() == [100] * 10
    rows = {bytes(image.flatten().tolist()) for part in (train, test) for image in part.images}
    assert len(rows) > 4990  # training and test images are disjoint, except for duplicates in the source


def test_the_sample_is_a_subset_of_mnist(monkeypatch: pytest.MonkeyPatch) -> None:
    everything = data.mnist(full("MNIST"))
    monkeypatch.delenv("WEFT_DATA", raising=False)
    known = {image.numpy().tobytes(): int(label) for part in everything for image, label in zip(*part)}
    for part in data.mnist():
        assert [known.get(image.numpy().tobytes()) for image in part.images] == part.labels.tolist()


def test_full_mnist_has_the_published_statistics() -> None:
    train, test = data.mnist(full("MNIST"))
    assert train.images.shape == (60000, 1, 28, 28) and test.images.shape == (10000, 1, 28, 28)
    # Published statistics: 5,923 zeros, 6,742 ones, ..., mean 0.1307, standard deviation 0.3081.
    assert train.labels.bincount().tolist() == [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert test.labels.bincount().tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    pixels = data.unit_floats(train.images)
    assert abs(pixels.mean().item() - 0.1307) < 5e-5 and abs(pixels.std().item() - 0.3081) < 5e-5
    assert train.labels[:8].tolist() == [5, 0, 4, 1, 9, 2, 1, 3]


def test_full_cifar10_has_the_published_statistics() -> None:
    folder = full("CIFAR10")
    for name, count in (("data_batch_1", 10000), ("test_batch", 2000)):
        images, labels = data.read_cifar10(folder / f"{name}.bin.gz")
        assert images.shape == (count, 3, 32, 32) and labels.shape == (count,)
        assert (labels.bincount(minlength=10) > count / 20).all()  # all classes are frequent
        assert (
            images.float().mean((0, 2, 3)) / 255 - torch.tensor([0.491, 0.482, 0.447])
        ).abs().max() < 0.02  # published means


def test_every_item_is_in_exactly_one_batch() -> None:
    for count, size, drop_last, sizes in (
        (10, 4, False, [4, 4, 2]),
        (10, 4, True, [4, 4]),
        (8, 4, True, [4, 4]),
        (3, 4, False, [3]),
        (3, 4, True, []),
        (0, 4, False, []),
    ):
        batches = data.shuffled_batches(count, 0, size=size, drop_last=drop_last)
        assert [len(batch) for batch in batches] == sizes
        numbers = [int(number) for batch in batches for number in batch]
        assert len(set(numbers)) == len(numbers) and set(numbers) <= set(range(count))


def test_batches_depend_only_on_seed_and_epoch() -> None:
    torch.manual_seed(3)
    before = torch.get_rng_state()
    # tests/data/batches_test.cpp expects the same numbers.
    assert data.shuffled_batches(10, 0)[0].tolist() == [4, 1, 7, 5, 3, 9, 0, 8, 6, 2]
    assert data.shuffled_batches(10, 2, seed=7)[0].tolist() == [8, 7, 3, 2, 5, 1, 6, 4, 9, 0]
    assert data.shuffled_batches(10, 1, seed=2**64 - 1)[0].tolist() == [5, 2, 9, 6, 0, 3, 1, 8, 7, 4]
    assert torch.equal(torch.get_rng_state(), before), "the global random state was used"


def test_batch_orders_match_recorded_orders() -> None:
    # tests/data/batch_order_test.cpp expects the same numbers.
    one = data.BatchOrder(10, size=3, seed=7)
    assert [batch.tolist() for batch in one.epoch(2)] == [[9, 2, 0], [3, 8, 6], [4, 7, 5], [1]]
    two = data.BatchOrder(11, size=4, seed=2**64 - 1)
    assert [batch.tolist() for batch in two.epoch(0)] == [[1, 6, 5, 0], [2, 10, 3, 9], [7, 8, 4]]
    assert two.owned(two.lanes(3, 0)).tolist() == [1, 2, 6, 7, 8, 10]
    assert data.sample(30, 20, 5).tolist() == [0, 5, 12, 19, 23, 26]


@pytest.mark.parametrize("count", [0, 1, 9, 10, 57])
@pytest.mark.parametrize("shuffle", [False, True])
def test_batches_do_not_depend_on_the_number_of_ranks(count: int, shuffle: bool) -> None:
    order = data.BatchOrder(count, size=10, seed=3, shuffle=shuffle)
    whole = order.epoch(1)
    assert len(whole) == len(order) and sorted(torch.cat([*whole, torch.empty(0).long()]).tolist()) == list(
        range(count)
    )
    if not shuffle:
        assert [int(image) for batch in whole for image in batch] == list(range(count))
    for ranks in (1, 2, 3, 13):
        parts = [order.epoch(1, order.lanes(ranks, rank)) for rank in range(ranks)]
        for batch, shares in zip(whole, zip(*parts)):
            assert torch.equal(torch.cat(shares), batch)
        for rank, shares in enumerate(parts):
            mine = torch.cat([*shares, torch.empty(0).long()]).sort().values
            assert torch.equal(mine, order.owned(order.lanes(ranks, rank)))
    assert len(data.BatchOrder(count, size=10, drop_last=True)) == count // 10


def test_sample_accepts_percentages_and_fractions() -> None:
    for percent, kept in ((100, 5000), (10, 500), (0.1, 500), (1, 50), (0.29, 1450), (29, 1450)):
        assert len(data.sample(5000, percent)) == kept
    assert len(data.sample(3, 1)) == 1 and len(data.sample(0, 50)) == 0
    for percent in (0, -1, 101, math.nan):
        with pytest.raises(ValueError, match="percent"):
            data.sample(10, percent)


def test_tiles_cover_the_image() -> None:
    images = torch.arange(2 * 11 * 7).view(2, 1, 11, 7)
    for rows, columns in ((1, 1), (2, 2), (3, 2), (13, 1)):
        bands = [
            torch.cat([data.tile(images, rows, columns, r * columns + c) for c in range(columns)], 3)
            for r in range(rows)
        ]
        assert torch.equal(torch.cat(bands, 2), images)
    for rows, columns, index in ((2, 2, 4), (2, 2, -1), (0, 1, 0), (1, 0, 0)):
        with pytest.raises(ValueError):
            data.tile(images, rows, columns, index)


def test_shards_cover_the_whole() -> None:
    whole = torch.arange(14).view(7, 2)
    assert [data.shard(whole, 3, part).shape[0] for part in range(3)] == [3, 2, 2]
    for parts in (1, 2, 3, 4, 7, 9):
        assert torch.equal(torch.cat([data.shard(whole, parts, part) for part in range(parts)]), whole)
    assert torch.equal(data.shard(whole, 2, 1, dim=1), whole[:, 1:])
    assert data.shard(whole, 3, 1).data_ptr() == whole[3:].data_ptr()
    for parts, index in ((3, 3), (3, -1), (0, 0)):
        with pytest.raises(ValueError, match=r"index|parts"):
            data.shard(whole, parts, index)


def test_invalid_arguments_are_rejected() -> None:
    for arguments in ({"count": -1}, {"size": 0}, {"seed": -1}):
        with pytest.raises(ValueError, match=next(iter(arguments))):
            data.BatchOrder(**{"count": 10, **arguments})
    order = data.BatchOrder(10, size=4)
    for lanes in (range(-1, 2), range(0, 5), range(0, 4, 2)):
        with pytest.raises(ValueError, match="lanes"):
            order.owned(lanes)
    for arguments in ({"count": -1}, {"epoch": -1}, {"size": 0}, {"seed": -1}):
        with pytest.raises(ValueError, match=next(iter(arguments))):
            data.shuffled_batches(**{"count": 10, "epoch": 0, **arguments})


def test_select_keeps_images_and_labels_together() -> None:
    some = data.LabelledImages(torch.arange(24, dtype=torch.uint8).view(6, 1, 2, 2), torch.arange(6))
    chosen = some.select(torch.tensor([4, 0, 4]))
    assert chosen.labels.tolist() == [4, 0, 4] and chosen.images[:, 0, 0, 0].tolist() == [16, 0, 16]
