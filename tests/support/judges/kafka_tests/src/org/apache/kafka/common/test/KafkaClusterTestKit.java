package org.apache.kafka.common.test;

import java.io.File;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Random;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.stream.Collectors;

import judge.Stub;
import judge.Zygote;
import kafka.cluster.Partition;
import kafka.log.LogManager;
import kafka.network.SocketServer;
import kafka.raft.KafkaRaftManager;
import kafka.server.BrokerServer;
import kafka.server.ControllerServer;
import kafka.server.KafkaApis;
import kafka.server.KafkaConfig;
import kafka.server.ReplicaManager;
import kafka.server.SharedServer;
import org.apache.kafka.clients.CommonClientConfigs;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AdminClientConfig;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.QuorumInfo;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.config.types.Password;
import org.apache.kafka.common.internals.Plugin;
import org.apache.kafka.common.message.MetadataResponseData.MetadataResponsePartition;
import org.apache.kafka.common.message.MetadataResponseData.MetadataResponseTopic;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.common.requests.MetadataRequest;
import org.apache.kafka.common.requests.MetadataResponse;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.controller.Controller;
import org.apache.kafka.coordinator.group.GroupCoordinator;
import org.apache.kafka.image.loader.MetadataLoader;
import org.apache.kafka.metadata.BrokerState;
import org.apache.kafka.metadata.KRaftMetadataCache;
import org.apache.kafka.metadata.LeaderAndIsr;
import org.apache.kafka.metadata.LeaderRecoveryState;
import org.apache.kafka.metadata.authorizer.StandardAuthorizer;
import org.apache.kafka.metadata.properties.MetaProperties;
import org.apache.kafka.raft.LogOffsetMetadata;
import org.apache.kafka.raft.RaftLog;
import org.apache.kafka.server.IntegrationTestUtils;
import org.apache.kafka.server.authorizer.AclCreateResult;
import org.apache.kafka.server.authorizer.AclDeleteResult;
import org.apache.kafka.server.authorizer.Authorizer;
import org.apache.kafka.server.common.ApiMessageAndVersion;
import org.apache.kafka.server.common.Feature;
import org.apache.kafka.server.common.MetadataVersion;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import scala.Option;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Stands in for Kafka's class of the same name: its nodes are `kraft serve` processes on ports of the loopback.
 *
 * What a test asks of a broker's inside is answered over the wire and from the directories where that is possible
 * (metadata, who is alive, whether a partition's directory is there); all else throws JUDGE-INTERNALS.
 */
public class KafkaClusterTestKit implements AutoCloseable {
    private static final boolean SPLITS = Boolean.getBoolean("judge.split");
    private static final int CONTROLLERS_FROM = 3000;
    private static final Random RANDOM = new Random();

    public static class Builder {
        private final TestKitNodes nodes;
        private final Map<String, Object> configProps = new HashMap<>();
        private boolean standalone;
        private Optional<Map<Integer, Uuid>> initialVoterSet = Optional.empty();
        private boolean deleteOnClose = true;

        public Builder(TestKitNodes nodes) {
            this.nodes = nodes;
        }

        public Builder setConfigProp(String key, Object value) {
            configProps.put(key, value);
            return this;
        }

        public Builder setStandalone(boolean standalone) {
            this.standalone = standalone;
            return this;
        }

        public Builder setInitialVoterSet(Map<Integer, Uuid> initialVoterSet) {
            this.initialVoterSet = Optional.of(initialVoterSet);
            return this;
        }

        public Builder setDeleteOnClose(boolean deleteOnClose) {
            this.deleteOnClose = deleteOnClose;
            return this;
        }

        public KafkaClusterTestKit build() throws Exception {
            return new KafkaClusterTestKit(this);
        }
    }

    /** One process: a broker, a controller or both. */
    private final class Node {
        final int id;
        final Properties properties = new Properties();
        final File file;
        final File log;
        final Map<String, Integer> ports = new HashMap<>();
        final boolean isBroker;
        final boolean isController;
        String listener = nodes.brokerListenerName().value();
        Map<String, String> principals = Map.of();
        int pid;
        CompletableFuture<Integer> exit;

        Node(int id, TestKitNode node, boolean isBroker, boolean isController) {
            this.id = id;
            this.isBroker = isBroker;
            this.isController = isController;
            this.file = new File(nodes.baseDirectory(), "node" + id + ".properties");
            this.log = new File(nodes.baseDirectory(), "node" + id + ".log");
        }

        boolean isAlive() {
            return exit != null && !exit.isDone();
        }

        String tail() {
            try {
                List<String> lines = Files.readAllLines(log.toPath());
                return String.join("\n", lines.subList(Math.max(0, lines.size() - 15), lines.size()));
            } catch (IOException e) {
                return e.toString();
            }
        }

        void start() {
            if (isAlive()) {
                return;
            }
            pid = Zygote.get().start(log.getPath(), principals, "serve", "-c", file.getPath());
            exit = Zygote.get().exit(pid);
        }

        void await() {
            long end = System.currentTimeMillis() + 180_000; // on a busy machine
            for (int port : ports.values()) {
                while (!isOpen(port)) {
                    if (!isAlive()) {
                        throw new RuntimeException("node " + id + " ended: " + tail());
                    }
                    if (System.currentTimeMillis() > end) {
                        throw new RuntimeException("node " + id + " does not listen: " + tail());
                    }
                    sleep(20);
                }
            }
        }

        void stop() {
            if (!isAlive()) {
                return;
            }
            Zygote.get().signal(pid, 15);
            try {
                exit.get(30, TimeUnit.SECONDS);
            } catch (TimeoutException e) {
                System.err.println("JUDGE-SLOW-STOP node " + id + " does not stop within 30 s:\n" + tail());
                Zygote.get().signal(pid, 9);
            } catch (Exception e) {
                throw new RuntimeException(e);
            }
        }
    }

    private final TestKitNodes nodes;
    private final Map<Integer, Node> byBroker = new TreeMap<>();
    private final Map<Integer, Node> byController = new TreeMap<>();
    private final Map<Integer, BrokerServer> brokers = new TreeMap<>();
    private final Map<Integer, ControllerServer> controllers = new TreeMap<>();
    private final MockFaultHandler fatal = new MockFaultHandler("fatalFaultHandler");
    private final MockFaultHandler nonFatal = new MockFaultHandler("nonFatalFaultHandler");
    private final Map<String, Object> configProps;
    private final boolean standalone;
    private final Optional<Map<Integer, Uuid>> initialVoterSet;
    private final boolean deleteOnClose;

    private KafkaClusterTestKit(Builder builder) throws Exception {
        nodes = builder.nodes;
        configProps = builder.configProps;
        standalone = builder.standalone;
        initialVoterSet = builder.initialVoterSet;
        deleteOnClose = builder.deleteOnClose;
        Files.createDirectories(Path.of(nodes.baseDirectory()));
        for (TestKitNode node : nodes.controllerNodes().values()) {
            boolean isCombined = nodes.isCombined(node.id()) && !SPLITS;
            int id = nodes.isCombined(node.id()) && SPLITS ? CONTROLLERS_FROM + node.id() : node.id();
            Node one = new Node(id, node, isCombined, true);
            byController.put(node.id(), one);
            if (isCombined) {
                byBroker.put(node.id(), one);
            }
        }
        for (TestKitNode node : nodes.brokerNodes().values()) {
            byBroker.computeIfAbsent(node.id(), id -> new Node(id, node, true, false));
        }
        for (Node node : all()) {
            if (node.isBroker) {
                node.ports.put(nodes.brokerListenerName().value(), freePort());
            }
            if (node.isController) {
                node.ports.put(nodes.controllerListenerName().value(), freePort());
            }
        }
        for (Node node : all()) {
            configure(node);
        }
        byBroker.forEach((id, node) -> brokers.put(id, brokerStub(id, node)));
        byController.forEach((id, node) -> controllers.put(id, controllerStub(id, node)));
    }

    private KafkaClusterTestKit(TestKitNodes empty) throws IOException {
        nodes = empty;
        configProps = Map.of();
        standalone = false;
        initialVoterSet = Optional.empty();
        deleteOnClose = true;
        Files.createDirectories(Path.of(nodes.baseDirectory()));
    }

    // ---- nodes that Kafka's QuorumTestHarness adds, each with all its settings

    public static KafkaClusterTestKit ofHarness(String clusterId) throws IOException {
        return new KafkaClusterTestKit(new TestKitNodes.Builder().setClusterId(clusterId).setNumBrokerNodes(0).setNumControllerNodes(0).build());
    }

    /** Starts a controller, whose directory is formatted. */
    public ControllerServer addController(Properties properties) throws Exception {
        int id = Integer.parseInt(properties.getProperty("node.id"));
        Node node = new Node(id, null, false, true);
        byController.put(id, node);
        write(node, properties);
        controllers.put(id, controllerStub(id, node));
        node.start();
        node.await();
        return controllers.get(id);
    }

    /** Formats a broker's directories, if they are new. */
    public BrokerServer addBroker(Map<?, ?> properties) throws Exception {
        int id = Integer.parseInt(properties.get("node.id").toString());
        Node node = new Node(id, null, true, false);
        byBroker.put(id, node);
        write(node, properties);
        int status = Zygote.get().exit(Zygote.get().start(node.log.getPath(), "format", "-c", node.file.getPath(), "-t", nodes.clusterId(), "-g"))
            .get(120, TimeUnit.SECONDS);
        if (status != 0) {
            throw new RuntimeException("format of node " + id + " ended with " + status + ": " + node.tail());
        }
        brokers.put(id, brokerStub(id, node));
        return brokers.get(id);
    }

    private void write(Node node, Map<?, ?> properties) throws IOException {
        properties.forEach((key, value) -> node.properties.setProperty(key.toString(), textOf(value)));
        takePrincipals(node);
        takeTelemetry(node);
        node.properties.putIfAbsent("log.dirs", node.properties.getProperty("log.dir", node.properties.getProperty("metadata.log.dir")));
        String first = null;
        List<String> listeners = new ArrayList<>();
        String protocols = node.properties.getProperty("listener.security.protocol.map", "");
        for (String listener : node.properties.getProperty("listeners").split(",")) {
            String name = listener.substring(0, listener.indexOf(':')).trim();
            int port = Integer.parseInt(listener.substring(listener.lastIndexOf(':') + 1).trim());
            node.ports.put(name, port == 0 ? freePort() : port);
            listeners.add(listener.trim().replaceAll(":\\d+$", ":" + node.ports.get(name)));
            boolean isPlain = name.equals("PLAINTEXT") || protocols.contains(name + ":PLAINTEXT");
            first = first == null && isPlain ? name : first;
        }
        String own = node.properties.getProperty("inter.broker.listener.name");
        node.listener = first != null && own != null && protocols.contains(own + ":PLAINTEXT") ? own : first;
        node.properties.setProperty("listeners", String.join(",", listeners));
        node.properties.setProperty("controller.quorum.voters", byController.values().stream()
            .map(c -> c.id + "@localhost:" + c.ports.get("CONTROLLER")).collect(Collectors.joining(",")));
        node.properties.remove("advertised.listeners");
        try (OutputStream out = new FileOutputStream(node.file)) {
            node.properties.store(out, null);
        }
    }

    /** The listeners' names of their peers, where a test has a principal builder of its own that goes by listeners. */
    private void takePrincipals(Node node) {
        String builder = node.properties.getProperty("principal.builder.class", "");
        if (builder.endsWith("AbstractAuthorizerIntegrationTest$PrincipalBuilder")) {
            node.principals = Map.of("BROKER", "User:broker", "CONTROLLER", "User:broker", "CLIENT", "User:client");
        } else if (builder.endsWith("GroupAuthorizerIntegrationTest$GroupPrincipalBuilder")) {
            node.principals = Map.of("BROKER", "Group:broker", "CONTROLLER", "Group:broker", "EXTERNAL", "Group:client");
        } else {
            return;
        }
        node.properties.remove("principal.builder.class");
    }

    /** A reporter in Kafka's JVM makes its brokers take the metrics of clients; ours have a setting for that. */
    private void takeTelemetry(Node node) {
        if (!node.properties.getProperty("metric.reporters", "").isEmpty()) {
            node.properties.setProperty("kraft.client.telemetry.enable", "true");
        }
    }

    private static String textOf(Object value) {
        return value instanceof Password p ? p.value() : value instanceof Class<?> c ? c.getName()
            : value instanceof Collection<?> c ? c.stream().map(Object::toString).collect(Collectors.joining(",")) : String.valueOf(value);
    }

    private Node anyAlive() {
        return byBroker.values().stream().filter(Node::isAlive).findFirst().orElseThrow();
    }

    private boolean isHarness() {
        return nodes.controllerNodes().isEmpty();
    }

    private Collection<Node> all() {
        Map<Integer, Node> all = new TreeMap<>();
        byBroker.values().forEach(node -> all.put(node.id, node));
        byController.values().forEach(node -> all.put(node.id, node));
        return all.values();
    }

    // ---- settings

    private void configure(Node node) throws Exception {
        TestKitNode broker = node.isBroker ? nodes.brokerNodes().get(node.id) : null;
        int controllerKey = byController.entrySet().stream().filter(e -> e.getValue() == node).map(Map.Entry::getKey).findFirst().orElse(-1);
        TestKitNode controller = node.isController ? nodes.controllerNodes().get(controllerKey) : null;
        String brokerListener = nodes.brokerListenerName().value();
        String controllerListener = nodes.controllerListenerName().value();
        Map<String, Object> props = new HashMap<>(configProps);
        props.put("process.roles", node.isBroker ? node.isController ? "broker,controller" : "broker" : "controller");
        props.put("node.id", node.id);
        String base = nodes.baseDirectory();
        if (controller != null) {
            String directory = SPLITS ? base + "/controller_" + node.id : controller.metadataDirectory();
            props.put("metadata.log.dir", directory);
            props.put("log.dirs", directory);
            setSasl(props, nodes.controllerListenerProtocol(), controllerListener);
        }
        if (broker != null) {
            if (controller == null) {
                props.put("metadata.log.dir", broker.metadataDirectory());
            }
            props.put("log.dirs", String.join(",", broker.logDataDirectories()));
            setSasl(props, nodes.brokerListenerProtocol(), brokerListener);
        }
        if (controller == null && nodes.controllerListenerProtocol() == SecurityProtocol.SASL_PLAINTEXT) {
            setSasl(props, SecurityProtocol.SASL_PLAINTEXT, controllerListener); // what it says to controllers
        }
        props.putIfAbsent("listener.security.protocol.map", String.format("%s:%s,%s:%s", brokerListener,
            nodes.brokerListenerProtocol().name, controllerListener, nodes.controllerListenerProtocol().name));
        String listeners = node.ports.entrySet().stream().map(e -> e.getKey() + "://localhost:" + e.getValue()).sorted(Collections.reverseOrder())
            .collect(Collectors.joining(","));
        if (props.containsKey("listeners")) {
            listeners = adapt(node, props.get("listeners").toString());
        }
        props.put("listeners", listeners);
        props.putIfAbsent("inter.broker.listener.name", brokerListener);
        props.putIfAbsent("controller.listener.names", controllerListener);
        props.putIfAbsent("log.cleaner.dedupe.buffer.size", "2097152"); // as Kafka's class; a test needs the limit
        if ("".equals(props.get("group.share.persister.class.name"))) {
            // Kafka has a persister that keeps nothing; here states are kept, which one broker can do.
            props.putIfAbsent("share.coordinator.state.topic.replication.factor", "1");
            props.putIfAbsent("share.coordinator.state.topic.min.isr", "1");
            props.putIfAbsent("share.coordinator.state.topic.num.partitions", "1");
        }
        boolean isDynamic = standalone || initialVoterSet.isPresent();
        props.put(isDynamic ? "controller.quorum.bootstrap.servers" : "controller.quorum.voters", byController.values().stream()
            .map(c -> (isDynamic ? "" : c.id + "@") + "localhost:" + c.ports.get(controllerListener)).collect(Collectors.joining(",")));
        if (node.isBroker) {
            props.remove("controller.quorum.auto.join.enable");
            if (!node.isController) {
                props.remove("advertised.listeners.controller");
            }
        }
        if (broker != null) {
            props.putAll(broker.propertyOverrides());
        }
        if (controller != null) {
            props.putAll(controller.propertyOverrides());
        }
        props.forEach((key, value) -> {
            node.properties.setProperty(key, textOf(value));
        });
        takePrincipals(node);
        takeTelemetry(node);
        try (OutputStream out = new FileOutputStream(node.file)) {
            node.properties.store(out, null);
        }
    }

    /** Keeps a test's own listeners, with a port of ours for each 0, and drops those that the node has no role for. */
    private String adapt(Node node, String listeners) {
        List<String> kept = new ArrayList<>();
        for (String listener : listeners.split(",")) {
            String name = listener.substring(0, listener.indexOf(':')).trim();
            boolean isController = name.equals(nodes.controllerListenerName().value());
            if (isController ? !node.isController : !node.isBroker) {
                continue;
            }
            if (listener.endsWith(":0")) {
                int port = node.ports.computeIfAbsent(name, n -> freePort());
                listener = listener.substring(0, listener.length() - 1) + port;
            } else {
                node.ports.put(name, Integer.parseInt(listener.substring(listener.lastIndexOf(':') + 1)));
            }
            kept.add(listener.trim());
        }
        return String.join(",", kept);
    }

    private static void setSasl(Map<String, Object> props, SecurityProtocol protocol, String listener) {
        if (protocol != SecurityProtocol.SASL_PLAINTEXT) {
            return;
        }
        props.putIfAbsent("sasl.enabled.mechanisms", "PLAIN");
        props.putIfAbsent("sasl.mechanism.inter.broker.protocol", "PLAIN");
        props.putIfAbsent("sasl.mechanism.controller.protocol", "PLAIN");
        props.putIfAbsent("authorizer.class.name", StandardAuthorizer.class.getName());
        props.putIfAbsent("allow.everyone.if.no.acl.found", "false");
        props.putIfAbsent("super.users", "User:" + JaasUtils.KAFKA_PLAIN_ADMIN);
        // Kafka's kit writes a JAAS file for its own JVM.
        String jaas = String.format("org.apache.kafka.common.security.plain.PlainLoginModule required username=\"%s\" password=\"%s\" "
            + "user_%s=\"%s\" user_%s=\"%s\";", JaasUtils.KAFKA_PLAIN_ADMIN, JaasUtils.KAFKA_PLAIN_ADMIN_PASSWORD,
            JaasUtils.KAFKA_PLAIN_USER1, JaasUtils.KAFKA_PLAIN_USER1_PASSWORD, JaasUtils.KAFKA_PLAIN_ADMIN, JaasUtils.KAFKA_PLAIN_ADMIN_PASSWORD);
        props.putIfAbsent("listener.name." + listener.toLowerCase() + ".plain.sasl.jaas.config", jaas);
    }

    private static synchronized int freePort() {
        while (true) {
            int port = 11000 + RANDOM.nextInt(20000);
            try (ServerSocket socket = new ServerSocket()) {
                socket.setReuseAddress(true);
                socket.bind(new InetSocketAddress(InetAddress.getLoopbackAddress(), port));
                return port;
            } catch (IOException e) {
                // taken
            }
        }
    }

    private static boolean isOpen(int port) {
        try (Socket socket = new Socket()) {
            socket.connect(new InetSocketAddress("localhost", port), 1000);
            return true;
        } catch (IOException e) {
            return false;
        }
    }

    private static void sleep(long millis) {
        try {
            Thread.sleep(millis);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            throw new RuntimeException(e);
        }
    }

    // ---- life

    public void format() throws Exception {
        MetadataVersion version = nodes.bootstrapMetadata().metadataVersion();
        Map<Node, CompletableFuture<Integer>> exits = new HashMap<>();
        for (Node node : all()) {
            List<String> args = new ArrayList<>(List.of("format", "-c", node.file.getPath(), "-t", nodes.clusterId(), "-r", version.version()));
            for (Feature feature : Feature.PRODUCTION_FEATURES) {
                if (feature == Feature.KRAFT_VERSION) {
                    continue; // the kind of quorum says it
                }
                short level = nodes.bootstrapMetadata().featureLevel(feature.featureName());
                if (level != feature.defaultLevel(version)) {
                    args.addAll(List.of("-f", feature.featureName() + "=" + level));
                }
            }
            if (standalone) {
                Map.Entry<Integer, Node> first = byController.entrySet().iterator().next();
                args.addAll(node != first.getValue() ? List.of("-N") : List.of("-I", node.id + "@localhost:"
                    + node.ports.get(nodes.controllerListenerName().value()) + ":" + nodes.controllerNodes().get(first.getKey()).metadataDirectoryId()));
            } else if (initialVoterSet.isPresent()) {
                String port = nodes.controllerListenerName().value();
                args.addAll(List.of("-I", initialVoterSet.get().entrySet().stream().map(e -> e.getKey() + "@localhost:"
                    + byController.get(e.getKey()).ports.get(port) + ":" + e.getValue()).collect(Collectors.joining(","))));
            }
            exits.put(node, Zygote.get().exit(Zygote.get().start(node.log.getPath(), args.toArray(new String[0]))));
        }
        for (Map.Entry<Node, CompletableFuture<Integer>> entry : exits.entrySet()) {
            int status = entry.getValue().get(60, TimeUnit.SECONDS);
            if (status != 0) {
                throw new RuntimeException("format of node " + entry.getKey().id + " ended with " + status + ": " + entry.getKey().tail());
            }
        }
        if (!SPLITS) {
            takeDirectoryIds(nodes.controllerNodes().values());
            takeDirectoryIds(nodes.brokerNodes().values());
        }
    }

    /** Gives each directory the id that the kit has chosen for it. */
    private static void takeDirectoryIds(Collection<TestKitNode> of) throws IOException {
        for (TestKitNode node : of) {
            for (Map.Entry<String, MetaProperties> each : node.initialMetaPropertiesEnsemble().logDirProps().entrySet()) {
                Path file = Path.of(each.getKey(), "meta.properties");
                if (each.getValue().directoryId().isPresent() && Files.exists(file)) {
                    Files.writeString(file, Files.readString(file).replaceAll("(?m)^directory.id=.*$", "directory.id=" + each.getValue().directoryId().get()));
                }
            }
        }
    }

    public void startup() throws ExecutionException, InterruptedException {
        long begin = System.currentTimeMillis();
        all().forEach(Node::start);
        all().forEach(Node::await);
        if (Boolean.getBoolean("judge.times")) {
            System.err.println("JUDGE-TIME start of " + all().size() + " nodes " + (System.currentTimeMillis() - begin) + " ms");
        }
    }

    public void waitForReadyBrokers() throws ExecutionException, InterruptedException {
        TestUtils.waitForCondition(() -> byBroker.values().stream().filter(Node::isAlive).allMatch(
            node -> aliveOf(node).containsAll(byBroker.keySet())), 60_000, "Failed to wait until all brokers are ready.");
    }

    @Override
    public void close() throws Exception {
        // Brokers first, as Kafka's kit does: a broker waits until a controller has let it go. judge.kill saves that time.
        boolean kills = Boolean.getBoolean("judge.kill");
        all().stream().filter(Node::isAlive).filter(node -> kills || node.isBroker).forEach(node -> Zygote.get().signal(node.pid, kills ? 9 : 15));
        if (!kills) {
            byBroker.values().forEach(Node::stop);
            all().stream().filter(Node::isAlive).forEach(node -> Zygote.get().signal(node.pid, 15));
        }
        List<String> complaints = new ArrayList<>();
        for (Node node : all()) {
            if (node.exit != null) {
                try {
                    int status = node.exit.get(20, TimeUnit.SECONDS);
                    if (status != 0 && status != -9 && status != 143) {
                        complaints.add("node " + node.id + " ended with " + status);
                    }
                } catch (TimeoutException e) {
                    complaints.add("node " + node.id + " does not stop");
                    Zygote.get().signal(node.pid, 9);
                    node.exit.get(20, TimeUnit.SECONDS);
                }
                if (node.log.exists()) {
                    for (String line : Files.readAllLines(node.log.toPath())) {
                        if (line.contains("Traceback") || line.contains(" error ")) {
                            complaints.add("node " + node.id + ": " + line);
                        }
                    }
                }
            }
        }
        if (!complaints.isEmpty()) {
            System.err.println("JUDGE-NODE " + nodes.baseDirectory() + " " + complaints);
            String keep = System.getProperty("judge.keep");
            if (keep != null) {
                for (Node node : all()) {
                    if (node.log.exists()) {
                        Files.copy(node.log.toPath(), Path.of(keep, new File(nodes.baseDirectory()).getName() + "-" + node.log.getName()));
                    }
                }
            }
        }
        if (deleteOnClose && !Boolean.getBoolean("judge.keepAll")) {
            org.apache.kafka.common.utils.Utils.delete(new File(nodes.baseDirectory()));
        }
    }

    // ---- clients

    public Admin admin() {
        return admin(Map.of());
    }

    public Admin admin(Map<String, Object> configs) {
        return admin(configs, false);
    }

    public Admin admin(Map<String, Object> configs, boolean usingBootstrapControllers) {
        Map<String, Object> props = new HashMap<>(configs);
        if (usingBootstrapControllers) {
            props.putIfAbsent(AdminClientConfig.BOOTSTRAP_CONTROLLERS_CONFIG, bootstrapControllers());
            props.remove(CommonClientConfigs.BOOTSTRAP_SERVERS_CONFIG);
        } else {
            props.putIfAbsent(CommonClientConfigs.BOOTSTRAP_SERVERS_CONFIG, bootstrapServers());
            props.remove(AdminClientConfig.BOOTSTRAP_CONTROLLERS_CONFIG);
        }
        return Admin.create(withSasl(props));
    }

    private Map<String, Object> withSasl(Map<String, Object> props) {
        if (nodes.brokerListenerProtocol() == SecurityProtocol.SASL_PLAINTEXT) {
            props.putIfAbsent("security.protocol", "SASL_PLAINTEXT");
            props.putIfAbsent("sasl.mechanism", "PLAIN");
            props.putIfAbsent("sasl.jaas.config", String.format("org.apache.kafka.common.security.plain.PlainLoginModule required "
                + "username=\"%s\" password=\"%s\";", JaasUtils.KAFKA_PLAIN_ADMIN, JaasUtils.KAFKA_PLAIN_ADMIN_PASSWORD));
        }
        return props;
    }

    public String bootstrapServers() {
        return byBroker.values().stream().map(node -> "localhost:" + node.ports.get(node.listener)).collect(Collectors.joining(","));
    }

    public String bootstrapControllers() {
        String listener = nodes.controllerListenerName().value();
        return byController.values().stream().map(node -> "localhost:" + node.ports.get(listener)).collect(Collectors.joining(","));
    }

    private boolean isPlain(Node node) {
        return isHarness() ? node.listener != null : nodes.brokerListenerProtocol() == SecurityProtocol.PLAINTEXT
            && !node.properties.getProperty("listener.security.protocol.map").contains("SSL");
    }

    // ---- what can be seen from outside

    private MetadataResponse metadataOf(Node node, List<String> topics) throws Exception {
        if (!isPlain(node)) {
            return metadataByAdmin(node, topics);
        }
        MetadataRequest.Builder builder = topics == null ? MetadataRequest.Builder.allTopics() : MetadataRequest.Builder.forTopicNames(topics, false);
        return IntegrationTestUtils.connectAndReceive(builder.build((short) 12), node.ports.get(node.listener));
    }

    private MetadataResponse metadataByAdmin(Node node, List<String> topics) throws Exception {
        throw new UnsupportedOperationException("JUDGE-TODO metadata over a secured listener");
    }

    private boolean isSecured() {
        return nodes.brokerListenerProtocol() != SecurityProtocol.PLAINTEXT
            || String.valueOf(configProps.get("listener.security.protocol.map")).contains("S");
    }

    private Set<Integer> aliveOf(Node node) {
        try {
            if (isHarness() && !isPlain(node)) {
                sleep(2000);
                return byBroker.keySet();
            }
            if (nodes.brokerListenerProtocol() != SecurityProtocol.PLAINTEXT || String.valueOf(configProps.get("listener.security.protocol.map")).contains(":SSL")) {
                if (String.valueOf(configProps.get("listener.security.protocol.map")).contains(":SSL")) {
                    sleep(2000);
                    return byBroker.keySet();
                }
                try (Admin admin = admin()) {
                    return admin.describeCluster().nodes().get(10, TimeUnit.SECONDS).stream().map(n -> n.id()).collect(Collectors.toSet());
                }
            }
            return metadataOf(node, List.of()).data().brokers().stream().map(b -> b.nodeId()).collect(Collectors.toSet());
        } catch (Exception e) {
            return Set.of();
        }
    }

    private Optional<MetadataResponseTopic> topicOf(Node node, String topic) throws Exception {
        if (isSecured()) {
            try (Admin admin = admin()) {
                var description = admin.describeTopics(List.of(topic)).allTopicNames().get(10, TimeUnit.SECONDS).get(topic);
                MetadataResponseTopic result = new MetadataResponseTopic().setName(topic).setTopicId(description.topicId());
                description.partitions().forEach(p -> result.partitions().add(new MetadataResponsePartition().setPartitionIndex(p.partition())
                    .setLeaderId(p.leader() == null ? -1 : p.leader().id()).setReplicaNodes(p.replicas().stream().map(n -> n.id()).toList())
                    .setIsrNodes(p.isr().stream().map(n -> n.id()).toList())));
                return Optional.of(result);
            } catch (ExecutionException e) {
                return Optional.empty();
            }
        }
        return metadataOf(node, List.of(topic)).data().topics().stream().filter(t -> topic.equals(t.name()) && t.errorCode() == 0).findFirst();
    }

    private Optional<MetadataResponsePartition> partitionOf(Node node, TopicPartition partition) throws Exception {
        return topicOf(node, partition.topic()).flatMap(t -> t.partitions().stream().filter(p -> p.partitionIndex() == partition.partition()).findFirst());
    }

    private static Optional<File> directoryOf(Node node, TopicPartition partition) {
        for (String directory : node.properties.getProperty("log.dirs").split(",")) {
            // As LogManager has it, whatever the setting.
            File file = new File(new File(directory).getAbsoluteFile(), partition.toString());
            if (file.isDirectory()) {
                return Optional.of(file);
            }
        }
        return Optional.empty();
    }

    private <T> T byQuorum(java.util.function.Function<QuorumInfo, T> question) throws Exception {
        try (Admin admin = admin()) {
            return question.apply(admin.describeMetadataQuorum().quorumInfo().get(15, TimeUnit.SECONDS));
        }
    }

    private long endOfLeader() {
        try {
            return byQuorum(info -> info.voters().stream().filter(v -> v.replicaId() == info.leaderId()).findFirst().get().logEndOffset());
        } catch (Exception e) {
            return 0;
        }
    }

    private long endOf(int id) {
        try {
            return byQuorum(info -> {
                List<QuorumInfo.ReplicaState> replicas = new ArrayList<>(info.voters());
                replicas.addAll(info.observers());
                return replicas.stream().filter(r -> r.replicaId() == id).mapToLong(QuorumInfo.ReplicaState::logEndOffset).max().orElse(0);
            });
        } catch (Exception e) {
            return 0;
        }
    }

    // ---- stubs of the inside

    private SocketServer sockets(Node node) {
        return new Stub(SocketServer.class).on("boundPort", a -> portOf(node, (ListenerName) a[0])).make();
    }

    private int portOf(Node node, ListenerName name) {
        return node.ports.entrySet().stream().filter(e -> e.getKey().equalsIgnoreCase(name.value())).map(Map.Entry::getValue).findFirst()
            .orElseThrow(() -> new IllegalArgumentException("no listener " + name));
    }

    @SuppressWarnings("unchecked")
    private Option<Plugin<Authorizer>> authorizer(Node node) {
        if (!node.properties.containsKey("authorizer.class.name")) {
            return Option.empty();
        }
        Authorizer authorizer = new Stub(Authorizer.class).on("acls", a -> {
            try (Admin admin = admin()) {
                return admin.describeAcls((AclBindingFilter) a[0]).values().get(15, TimeUnit.SECONDS);
            }
        }).on("createAcls", a -> {
            List<AclBinding> bindings = (List<AclBinding>) a[1];
            try (Admin admin = admin()) {
                admin.createAcls(bindings).all().get(15, TimeUnit.SECONDS);
            }
            return bindings.stream().map(b -> CompletableFuture.completedStage(AclCreateResult.SUCCESS)).toList();
        }).on("deleteAcls", a -> {
            List<AclBindingFilter> filters = (List<AclBindingFilter>) a[1];
            try (Admin admin = admin()) {
                Collection<AclBinding> gone = admin.deleteAcls(filters).all().get(15, TimeUnit.SECONDS);
                return filters.stream().map(f -> CompletableFuture.completedStage(new AclDeleteResult(
                    gone.stream().filter(f::matches).map(AclDeleteResult.AclBindingDeleteResult::new).toList()))).toList();
            }
        }).make();
        return Option.apply(new Stub(Plugin.class).is("get", authorizer).make());
    }

    private KafkaConfig configOf(Node node) {
        return KafkaConfig.fromProps(node.properties, false);
    }

    private KRaftMetadataCache cache(Node node) {
        return new Stub(KRaftMetadataCache.class)
            .on("numPartitions", a -> topicOf(node, (String) a[0]).map(t -> t.partitions().size()))
            .on("contains", a -> a[0] instanceof TopicPartition p ? partitionOf(node, p).isPresent() : topicOf(node, (String) a[0]).isPresent())
            .on("getAllTopics", a -> metadataOf(node, null).data().topics().stream().map(MetadataResponseTopic::name).collect(Collectors.toSet()))
            .on("getTopicId", a -> topicOf(node, (String) a[0]).map(MetadataResponseTopic::topicId).orElse(Uuid.ZERO_UUID))
            .on("hasAliveBroker", a -> aliveOf(node).contains((Integer) a[0]))
            .on("getAliveBrokerNodes", a -> metadataOf(node, List.of()).brokers().stream().toList())
            .on("getLeaderAndIsr", a -> partitionOf(node, new TopicPartition((String) a[0], (Integer) a[1])).map(p ->
                new LeaderAndIsr(p.leaderId(), p.leaderEpoch(), p.isrNodes(), LeaderRecoveryState.RECOVERED, 0)))
            .make();
    }

    private BrokerServer brokerStub(int id, Node node) {
        KRaftMetadataCache cache = cache(node);
        SocketServer sockets = sockets(node);
        MetadataLoader loader = new Stub(MetadataLoader.class).on("lastAppliedOffset", a -> endOf(node.id)).make();
        SharedServer shared = new Stub(SharedServer.class).is("loader", loader).make();
        KafkaApis apis = new Stub(KafkaApis.class).is("metadataCache", cache).on("isConsumerGroupProtocolEnabled", a ->
            node.properties.getProperty("group.coordinator.rebalance.protocols", "classic,consumer").contains("consumer")
                && nodes.bootstrapMetadata().featureLevel("group.version") > 0).make();
        ReplicaManager replicas = new Stub(ReplicaManager.class).on("onlinePartition", a -> {
            TopicPartition partition = (TopicPartition) a[0];
            boolean isHere = directoryOf(node, partition).isPresent() && partitionOf(node, partition).isPresent();
            return isHere ? Option.apply(partitionStub(node, partition)) : Option.empty();
        }).make();
        LogManager logs = new Stub(LogManager.class)
            .is("getLog$default$2", false)
            .on("getLog", a -> directoryOf(node, (TopicPartition) a[0]).map(d -> Option.apply(logStub((TopicPartition) a[0], d)))
                .orElse(Option.empty()))
            .on("liveLogDirs", a -> CollectionConverters.asScala(java.util.Arrays.stream(node.properties.getProperty("log.dirs").split(","))
                .map(File::new).toList()).toSeq())
            .make();
        Object[] config = new Object[1];
        return new Stub(BrokerServer.class)
            .on("config", a -> config[0] == null ? config[0] = configOf(node) : config[0])
            .is("metadataCache", cache)
            .is("socketServer", sockets)
            .is("sharedServer", shared)
            .is("dataPlaneRequestProcessor", apis)
            .is("replicaManager", replicas)
            .is("logManager", logs)
            .is("groupCoordinator", new Stub(GroupCoordinator.class).on("groupMetadataTopicConfigs", a -> {
                Properties of = new Properties();
                of.put("cleanup.policy", "compact");
                of.put("compression.type", "producer");
                of.put("segment.bytes", node.properties.getProperty("offsets.topic.segment.bytes", "104857600"));
                return of;
            }).make())
            .is("clusterId", nodes.clusterId())
            .on("authorizerPlugin", a -> authorizer(node))
            .on("boundPort", a -> portOf(node, (ListenerName) a[0]))
            .on("isShutdown", a -> !node.isAlive())
            .on("brokerState", a -> !node.isAlive() ? BrokerState.NOT_RUNNING : aliveOf(node).contains(id) ? BrokerState.RUNNING : BrokerState.STARTING)
            .on("shutdown", a -> {
                node.stop();
                return null;
            })
            .on("awaitShutdown", a -> {
                node.exit.get(60, TimeUnit.SECONDS);
                return null;
            })
            .on("startup", a -> {
                node.start();
                node.await();
                TestUtils.waitForCondition(() -> aliveOf(node).contains(id), 60_000, "broker " + id + " is not unfenced");
                return null;
            })
            .make();
    }

    /** A partition's log, as far as a client sees it. */
    private UnifiedLog logStub(TopicPartition partition, File directory) {
        return new Stub(UnifiedLog.class)
            .is("dir", directory)
            .on("logStartOffset", a -> offsetOf(partition, OffsetSpec.earliest()))
            .on("logEndOffset", a -> offsetOf(partition, OffsetSpec.latest()))
            .on("highWatermark", a -> offsetOf(partition, OffsetSpec.latest()))
            .on("lastStableOffset", a -> offsetOf(partition, OffsetSpec.latest()))
            .make();
    }

    private long offsetOf(TopicPartition partition, OffsetSpec spec) throws Exception {
        try (Admin admin = admin()) {
            return admin.listOffsets(Map.of(partition, spec)).partitionResult(partition).get(15, TimeUnit.SECONDS).offset();
        }
    }

    private Option<UnifiedLog> leaderLog(Node node, TopicPartition partition) throws Exception {
        boolean leads = partitionOf(node, partition).map(p -> p.leaderId() == node.id).orElse(false);
        return leads ? directoryOf(node, partition).map(d -> Option.apply(logStub(partition, d))).orElse(Option.empty()) : Option.empty();
    }

    private Partition partitionStub(Node node, TopicPartition partition) {
        return new Stub(Partition.class)
            .is("topicPartition", partition)
            .on("isLeader", a -> partitionOf(node, partition).map(p -> p.leaderId() == node.id).orElse(false))
            .on("leaderLogIfLocal", a -> leaderLog(node, partition))
            .on("leaderReplicaIdOpt", a -> Option.apply(partitionOf(node, partition).map(MetadataResponsePartition::leaderId).orElse(null)))
            .on("leaderIdIfLocal", a -> Option.apply(partitionOf(node, partition).map(MetadataResponsePartition::leaderId)
                .filter(id -> id == node.id).orElse(null)))
            .make();
    }

    private ControllerServer controllerStub(int id, Node node) {
        RaftLog log = new Stub(RaftLog.class).on("endOffset", a -> new LogOffsetMetadata(endOfLeader())).make();
        KafkaRaftManager<?> raft = new Stub(KafkaRaftManager.class).is("raftLog", log).is("replicatedLog", log).make();
        Controller controller = new Stub(Controller.class)
            .on("findAllTopicIds", a -> CompletableFuture.completedFuture(metadataOf(anyAlive(), null).data().topics().stream()
                .collect(Collectors.toMap(MetadataResponseTopic::name, MetadataResponseTopic::topicId))))
            .on("isActive", a -> byQuorum(info -> info.leaderId() == node.id))
            .on("waitForReadyBrokers", a -> {
                waitForReadyBrokers();
                return CompletableFuture.completedFuture(null);
            }).make();
        SocketServer sockets = sockets(node);
        Object[] config = new Object[1];
        return new Stub(ControllerServer.class)
            .on("config", a -> config[0] == null ? config[0] = configOf(node) : config[0])
            .is("socketServer", sockets)
            .is("controller", controller)
            .is("raftManager", raft)
            .is("clusterId", nodes.clusterId())
            .on("authorizerPlugin", a -> authorizer(node))
            .on("shutdown", a -> {
                node.stop();
                return null;
            })
            .on("awaitShutdown", a -> {
                node.exit.get(60, TimeUnit.SECONDS);
                return null;
            })
            .on("startup", a -> {
                node.start();
                node.await();
                return null;
            })
            .make();
    }

    public Map<Integer, ControllerServer> controllers() {
        return controllers;
    }

    public Map<Integer, BrokerServer> brokers() {
        return brokers;
    }

    public Controller waitForActiveController() throws InterruptedException {
        for (long end = System.currentTimeMillis() + 60_000; System.currentTimeMillis() < end; sleep(100)) {
            for (ControllerServer server : controllers.values()) {
                if (server.controller().isActive()) {
                    return server.controller();
                }
            }
        }
        throw new AssertionError("Controller not active");
    }

    public Map<Integer, KafkaRaftManager<ApiMessageAndVersion>> raftManagers() {
        throw new UnsupportedOperationException("JUDGE-INTERNALS raftManagers");
    }

    public TestKitNodes nodes() {
        return nodes;
    }

    public MockFaultHandler fatalFaultHandler() {
        return fatal;
    }

    public MockFaultHandler nonFatalFaultHandler() {
        return nonFatal;
    }
}
