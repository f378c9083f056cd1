import java.io.OutputStreamWriter;
import java.io.PrintWriter;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Scanner;
import java.util.concurrent.CountDownLatch;

import org.apache.kafka.image.MetadataDelta;
import org.apache.kafka.image.MetadataImage;
import org.apache.kafka.image.loader.LoaderManifest;
import org.apache.kafka.image.loader.MetadataLoader;
import org.apache.kafka.metadata.util.SnapshotFileReader;
import org.apache.kafka.server.fault.LoggingFaultHandler;
import org.apache.kafka.shell.command.Commands;
import org.apache.kafka.shell.state.MetadataShellPublisher;
import org.apache.kafka.shell.state.MetadataShellState;

/**
 * Kafka's metadata shell for many commands on whole snapshots: its own program runs a command as soon as it has read the
 * first batch. A line of standard input is a snapshot and the words of a command, between tabs; what each command prints
 * is followed by the character 30, a record separator.
 */
public class ShellOracle {
    public static void main(String[] args) throws Exception {
        Map<String, MetadataShellState> states = new HashMap<>();
        PrintWriter out = new PrintWriter(new OutputStreamWriter(System.out, StandardCharsets.UTF_8));
        Scanner lines = new Scanner(System.in, StandardCharsets.UTF_8);
        while (lines.hasNextLine()) {
            List<String> words = Arrays.asList(lines.nextLine().split("\t"));
            if (!states.containsKey(words.get(0))) {
                states.put(words.get(0), stateOf(words.get(0)));
            }
            List<String> command = words.subList(1, words.size());
            new Commands(false).parseCommand(command).run(Optional.empty(), out, states.get(words.get(0)));
            out.print('\u001e');
        }
        out.flush();
    }

    /** The publisher is first called once most is read; closing reader and loader waits until all is. */
    private static MetadataShellState stateOf(String snapshot) throws Exception {
        MetadataShellState state = new MetadataShellState();
        CountDownLatch published = new CountDownLatch(1);
        SnapshotFileReader[] reader = new SnapshotFileReader[1];
        MetadataLoader loader = new MetadataLoader.Builder()
            .setNodeId(-1)
            .setFaultHandler(new LoggingFaultHandler("shell", () -> { }))
            .setHighWaterMarkAccessor(() -> reader[0].highWaterMark())
            .build();
        reader[0] = new SnapshotFileReader(snapshot, loader);
        reader[0].startup();
        loader.installPublishers(List.of(new MetadataShellPublisher(state) {
            @Override
            public void onMetadataUpdate(MetadataDelta delta, MetadataImage image, LoaderManifest manifest) {
                super.onMetadataUpdate(delta, image, manifest);
                published.countDown();
            }
        })).get();
        published.await();
        reader[0].close();
        loader.close();
        return state;
    }
}
